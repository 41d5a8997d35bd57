"""Runs each case bare and under the tool, and compares what came of it, byte for byte.

    python run.py --venv VENV --out OUT [--only GLOB] [--entrances run,watch] [--jobs 1]
    python run.py --venv VENV --out OUT --bare-twice          # are the cases deterministic by themselves?

An attempt is one case by one entrance: ``run`` (numscope run case.py), ``watch`` (the case calls numscope.watch itself),
``sentinel`` and ``stats`` (numscope run with --level sentinel; with a configuration of statistics and a log dir), ``tool``
(cases about numscope's other commands: the case asserts by itself). Rows: equal, different, hang, crash.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import difflib
import fnmatch
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATS = """all:
  enabled: true
  layers: {layer_name_regex_pattern: ".*"}
  statistics:
    enabled: true
    stats: [mean, std, max]
    tensors: [activation, output, weight]
    freq: 1
"""


def meta_of(path: Path) -> dict:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    found = {"title": doc.splitlines()[0] if doc else path.stem, "source": "", "truth": "", "meta": {}}
    for key in ("source", "truth", "meta"):
        m = re.search(rf"^{key}:\s*(.+?)(?=^\w+:|\Z)", doc, re.M | re.S)
        if m:
            text = " ".join(m[1].split())
            found[key] = json.loads(text) if key == "meta" else text
    return found


def by_mark(mark: str) -> list[int]:
    """Processes that inherited this attempt's mark: ours, and nobody else's."""
    mine = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if f"FC_MARK={mark}".encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    state = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
                    if state not in "ZX":
                        mine.append(int(entry))
            except OSError:
                pass
    return mine


def end_all(mark: str) -> None:
    for _ in range(5):
        left = by_mark(mark)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if not left:
            return
        time.sleep(0.1)


def tree(root: Path, ignore: list[str]) -> dict[str, str]:
    found = {}
    for folder, dirs, files in os.walk(root):
        for name in sorted(dirs + files):
            path = Path(folder) / name
            rel = str(path.relative_to(root))
            if any(fnmatch.fnmatch(rel, pattern) for pattern in ignore) or "__pycache__" in rel:
                continue
            st = path.lstat()
            kind = f"{stat.filemode(st.st_mode)}"
            if stat.S_ISLNK(st.st_mode):
                found[rel] = f"link {os.readlink(path)}"
            elif stat.S_ISREG(st.st_mode) and st.st_size > 256 << 20:
                found[rel] = f"{kind} {st.st_size} bytes"
            elif stat.S_ISREG(st.st_mode):
                found[rel] = f"{kind} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
            else:
                found[rel] = kind
    return found


_FRAME = re.compile(r'^(?P<in>[\s|+]*)File "(?P<file>[^"]+)", line (?P<line>\d+)')


def normal(text: str, work: str) -> list[str]:
    """stderr without numscope's own lines, without frames of code that is not the case's, without pids, addresses, times."""
    lines, out, skip = text.replace("\r", "\n").splitlines(), [], None
    for line in lines:
        line = re.sub(r"^\[rank\d+\]:\s?", "", line)
        if skip is not None:
            ind = len(line) - len(line.lstrip())
            if line.strip() and ind > skip or not line.strip():
                continue
            skip = None
        m = _FRAME.match(line)
        if m and work not in m["file"]:
            skip = len(m["in"])
            continue
        if line.startswith("numscope:"):
            continue
        if re.match(r"^\s*[\^~]+\s*$", line):
            continue
        line = re.sub(r"0x[0-9a-f]+", "0x", line)
        line = re.sub(r"\b[WEI]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", "LOG ", line)
        line = re.sub(r"(?i)\b(pid|process|thread|tid)([ :=(]+)\d+", r"\1\2N", line)
        out.append(line)
    return out


def launch(venv: Path, case: Path, meta: dict, how: str, work: Path) -> tuple[list[str], dict]:
    py, torchrun, env = str(venv / "bin/python"), meta.get("torchrun"), {}
    script = meta.get("script") or [case.name]
    args = meta.get("args", [])
    extra = meta.get("tool_args", [])
    logs = str(work) + ".log"
    tool = {
        "run": extra,
        "sentinel": ["--level", "sentinel", *extra],
        "stats": ["--config", str(work) + ".yaml", "--log-dir", logs, *extra],
    }.get(how)
    if how == "watch":
        env["FC_ENTRANCE"] = "watch"
    if tool is not None:
        env["FC_ENTRANCE"] = "run"
    if torchrun:
        options = ["--standalone", "--nproc-per-node", str(torchrun), *meta.get("torchrun_args", [])]
        base = [py, "-m", "torch.distributed.run", *options]
        command = [*base, *(["-m", "numscope", "run", *tool] if tool is not None else []), *script, *args]
    elif tool is not None:
        head = [py, "-m", "numscope"] if meta.get("as_module") else [str(venv / "bin/numscope")]
        command = [*head, "run", *tool, *script, *args]
    else:
        command = [py, *script, *args]
    if meta.get("shell"):
        command = ["bash", "-c", meta["shell"], "--", *command]
    return command, env


def attempt(venv: Path, case: Path, info: dict, how: str, out: Path) -> dict:
    """One run; always in the same folder, so that paths in what it writes are the same."""
    meta = info["meta"]
    work = out / "work" / case.stem
    tmp = Path(str(work) + ".tmp")
    subprocess.run(["chmod", "-R", "u+rwX", str(work)], capture_output=True)
    for folder in (work, tmp, Path(str(work) + ".log")):
        shutil.rmtree(folder, ignore_errors=True)
    work.mkdir(parents=True)
    tmp.mkdir()
    Path(str(work) + ".yaml").write_text(STATS)
    shutil.copyfile(case, work / case.name)
    mark = uuid.uuid4().hex
    command, own = launch(venv, case, meta, how, work)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NUMSCOPE", "FC_", "PYTHON", "TORCH", "MASTER_", "RANK"))}
    env |= {
        "PATH": f"{venv / 'bin'}:{env.get('PATH', '')}",
        "PYTHONPATH": str(HERE / "lib"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(tmp),
        "HOME": str(tmp),
        "FC_MARK": mark,
        "FC_VENV": str(venv),
        "FC_LIB": str(HERE / "lib"),
        "COLUMNS": "120",
    }
    env |= {k: v.replace("$WORK", str(work)) for k, v in meta.get("env", {}).items()} | own
    for k in meta.get("unset", []):
        env.pop(k, None)
    if meta.get("setup"):
        subprocess.run(["bash", "-ec", meta["setup"]], cwd=work, env=env, check=True)
    limit = meta.get("limit", 60) * (1 if how == "bare" else 2)
    stdin = meta.get("stdin")
    out_path, err_path = Path(str(work) + ".stdout"), Path(str(work) + ".stderr")
    began = time.monotonic()
    with open(out_path, "wb") as o, open(err_path, "wb") as e:
        p = subprocess.Popen(
            command,
            cwd=work / meta.get("cwd", "."),
            env=env,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=o,
            stderr=e,
            start_new_session=True,
        )
        hang = False
        try:
            p.communicate(stdin.encode() if stdin is not None else None, timeout=limit)
        except subprocess.TimeoutExpired:
            hang = True
            end_all(mark)
            p.wait()
    seconds = time.monotonic() - began
    # what a documented helper (a page that is being written) may still do; then whoever is left is left over
    until = time.monotonic() + meta.get("grace", 4)
    while (left := by_mark(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    names = []
    for pid in left:
        try:
            names.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
        except OSError:
            pass
    end_all(mark)
    stdout, stderr = out_path.read_bytes(), err_path.read_bytes().decode(errors="replace")
    files = tree(work, [case.name, *meta.get("ignore", [])])
    left_tmp = sorted(re.sub(r"[0-9a-z_]{6,}$", "*", name) for name in os.listdir(tmp) if not name.startswith(("torchinductor_", ".cache", ".config", ".triton")))
    shown = stdout.decode(errors="replace")
    if meta.get("sort_stdout"):
        shown = "\n".join(sorted(shown.splitlines()))
    subprocess.run(["chmod", "-R", "u+rwX", str(work)], capture_output=True)
    return {
        "command": command,
        "how": how,
        "hang": hang,
        "status": p.returncode,
        "seconds": round(seconds, 2),
        "stdout": shown,
        "stderr": normal(stderr, str(work)),
        "raw_stderr": stderr[-6000:],
        "files": files,
        "left": names,
        "tmp": left_tmp,
    }


def compare(bare: dict, seen: dict, meta: dict) -> list[str]:
    """What differs, as readable lines; empty where nothing does."""
    wanted = meta.get("compare", ["status", "stdout", "files", "stderr", "left", "tmp"])
    found = []
    if seen["hang"] != bare["hang"]:
        found.append(f"hang: bare {bare['hang']} after {bare['seconds']} s, under the tool {seen['hang']} after {seen['seconds']} s")
    if "status" in wanted and bare["status"] != seen["status"]:
        found.append(f"status: bare {bare['status']}, under the tool {seen['status']}")
    for key in ("stdout", "stderr"):
        if key in wanted:
            a, b = bare[key], seen[key]
            a, b = (a.splitlines(), b.splitlines()) if isinstance(a, str) else (a, b)
            if bare[key] != seen[key]:
                found += [f"{key}: {line}" for line in list(difflib.unified_diff(a, b, "bare", "tool", lineterm="", n=1))[:40]]
    if "files" in wanted and bare["files"] != seen["files"]:
        for name in sorted(set(bare["files"]) | set(seen["files"])):
            if bare["files"].get(name) != seen["files"].get(name):
                found.append(f"file {name}: bare {bare['files'].get(name)}, under the tool {seen['files'].get(name)}")
    if "left" in wanted and len(bare["left"]) != len(seen["left"]):
        found.append(f"processes left over: bare {bare['left']}, under the tool {seen['left']}")
    if "tmp" in wanted and bare["tmp"] != seen["tmp"]:
        found.append(f"left in TMPDIR: bare {bare['tmp']}, under the tool {seen['tmp']}")
    return found


def judged(bare: dict, seen: dict, meta: dict) -> tuple[str, list[str]]:
    found = compare(bare, seen, meta)
    if seen["hang"] and not bare["hang"]:
        return "hang", found
    if seen["status"] != bare["status"] and seen["status"] < 0:
        return "crash", found
    return ("different" if found else "equal"), found


def of_case(job) -> list[dict]:
    venv, case, out, entrances, twice = job
    info = meta_of(case)
    meta, rows = info["meta"], []
    base = {"case": case.stem, "title": info["title"], "source": info["source"], "truth": info["truth"]}
    if meta.get("kind") == "tool":
        if twice or "tool" not in entrances:
            return []
        seen = attempt(venv, case, info, "bare", out)
        bad = [line for line in seen["stdout"].splitlines() if line.startswith("harm")]
        verdict = "hang" if seen["hang"] else "crash" if seen["status"] < 0 else "different" if bad or seen["status"] or "done" not in seen["stdout"] else "equal"
        return [base | {"entrance": "tool", "verdict": verdict, "diff": bad or ([] if verdict == "equal" else seen["stdout"].splitlines()[-10:] + seen["raw_stderr"].splitlines()[-15:]), "seconds": seen["seconds"], "stdout": seen["stdout"][-3000:]}]
    bare = attempt(venv, case, info, "bare", out)
    if twice:
        again = attempt(venv, case, info, "bare", out)
        verdict, found = judged(bare, again, meta)
        ok = bare["status"] in meta.get("expect_status", [0]) and not bare["hang"]
        return [base | {"entrance": "bare-twice", "verdict": verdict if ok else "bare fails", "diff": found if ok else [f"status {bare['status']}", *bare["stdout"].splitlines()[-5:], *bare["raw_stderr"].splitlines()[-12:]], "seconds": bare["seconds"], "stdout": bare["stdout"][-1500:], "stderr": bare["raw_stderr"][-800:]}]
    allowed = meta.get("entrances", ["run", "watch"] if "fcw" in case.read_text() and "watch(" in case.read_text() else ["run"])
    for how in entrances:
        if how == "tool" or (how in ("run", "watch") and how not in allowed) or (how in ("sentinel", "stats") and "run" not in allowed):
            continue
        seen = attempt(venv, case, info, how, out)
        verdict, found = judged(bare, seen, meta)
        if verdict != "equal" and verdict != "hang":  # once more: is it the machine?
            bare2, seen2 = attempt(venv, case, info, "bare", out), attempt(venv, case, info, how, out)
            verdict2, found2 = judged(bare2, seen2, meta)
            if verdict2 == "equal":
                found = ["(not reproduced in a second pair of runs)", *found]
                verdict = "unsteady"
        rows.append(base | {"entrance": how, "verdict": verdict, "diff": found, "seconds": seen["seconds"], "bare_seconds": bare["seconds"], "command": seen["command"], "stderr": seen["raw_stderr"][-2500:] if verdict != "equal" else ""})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="*", help="globs of case names, by commas")
    parser.add_argument("--entrances", default="run,watch,tool")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--bare-twice", action="store_true")
    options = parser.parse_args()
    venv, out = Path(os.path.abspath(options.venv)), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    cases = [c for c in sorted((HERE / "cases").glob("*.py")) if any(fnmatch.fnmatch(c.stem, g) for g in options.only.split(","))]
    entrances = options.entrances.split(",")
    jobs = [(venv, c, out, entrances, options.bare_twice) for c in cases]
    rows: list[dict] = []
    name = "bare-twice" if options.bare_twice else "results"
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for new in pool.map(of_case, jobs):
            for row in new:
                rows.append(row)
                print(f"{row['verdict']:10} {row['entrance']:10} {row['case']:34} {row['seconds']:6.1f} s  {' | '.join(row['diff'])[:160]}", flush=True)
            (out / f"{name}.json").write_text(json.dumps(rows, indent=1))
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["verdict"]] = totals.get(row["verdict"], 0) + 1
    good = "equal"
    lines = [f"# {len(rows)} attempts on {len({r['case'] for r in rows})} cases", "", *(f"- {k}: {v}" for k, v in sorted(totals.items())), ""]
    for row in rows:
        if row["verdict"] != good:
            lines += [f"## {row['case']} by {row['entrance']}: {row['verdict']}", "", row["title"], "", f"source: {row['source']}", "", f"expected: {row['truth'] or 'what the bare run gives'}", "", "```text", *row["diff"], "```", ""]
            if row.get("stderr"):
                lines += ["stderr, its end:", "", "```text", row["stderr"][-1800:], "```", ""]
    lines += ["| case | entrance | verdict | s | bare s |", "|---|---|---|---|---|"]
    lines += [f"| {r['case']} | {r['entrance']} | {r['verdict']} | {r['seconds']} | {r.get('bare_seconds', '')} |" for r in rows]
    (out / ("bare-twice.md" if options.bare_twice else "summary.md")).write_text("\n".join(lines) + "\n")
    print(totals)
    return 0 if set(totals) <= {good} else 1


if __name__ == "__main__":
    sys.exit(main())
