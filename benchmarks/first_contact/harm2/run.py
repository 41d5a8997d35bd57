"""Runs each case bare and watched and compares.

    python run.py --venv VENV --out OUT [--set FOLDER] [--only a,b] [--bare-twice] [--modes run,watch]

bare:   VENV/bin/python case.py
run:    VENV/bin/python -m numscope run case.py      (torchrun: `… torch.distributed.run … -m numscope run case.py`)
watch:  FC_WATCH=1 VENV/bin/python case.py           (cases with "watch": true)
A difference is run a second time as a pair (bare, watched); both pairs are in results.json.
"""
import argparse, difflib, hashlib, json, os, shutil, signal, stat, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))


def plain_signals():
    for s in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # a shell's background job or nohup has them ignored
        signal.signal(s, signal.SIG_DFL)


def marked(mark):
    found = []
    for p in os.listdir("/proc"):
        if p.isdigit() and int(p) != os.getpid():
            try:
                if mark in open(f"/proc/{p}/environ", "rb").read():
                    state = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[0]
                    if state != "Z":
                        found.append((int(p), open(f"/proc/{p}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace").strip()))
            except OSError:
                pass
    return found


def tree(folder):
    files = {}
    for root, dirs, names in os.walk(folder):
        for n in sorted(dirs + names):
            p = os.path.join(root, n)
            s = os.lstat(p)
            rel = os.path.relpath(p, folder)
            if rel == "case.py":
                continue
            mode = stat.filemode(s.st_mode)
            if stat.S_ISREG(s.st_mode):
                try:
                    files[rel] = f"{mode} {s.st_size} {hashlib.sha256(open(p, 'rb').read()).hexdigest()[:16]}"
                except OSError as e:
                    files[rel] = f"{mode} {e}"
            elif stat.S_ISLNK(s.st_mode):
                files[rel] = f"{mode} -> {os.readlink(p)}"
            else:
                files[rel] = mode
    return dict(sorted(files.items()))


def wipe(folder):
    if os.path.isdir(folder):
        for root, dirs, _ in os.walk(folder):
            for d in dirs:
                try:
                    os.chmod(os.path.join(root, d), 0o755)
                except OSError:
                    pass
        os.chmod(folder, 0o755)
    shutil.rmtree(folder, ignore_errors=True)


def once(name, t, mode, a, label):
    python = os.path.join(a.venv, "bin", "python")
    base = os.path.join(a.out, name)
    work = os.path.join(base, "work")  # the same path for every run, so that texts with paths can be compared
    wipe(work)
    os.makedirs(work)
    own = os.path.join(a.set, "prelude.txt")
    with open(os.path.join(a.set, "cases", name + ".py")) as case, open(own if os.path.exists(own) else os.path.join(here, "prelude.txt")) as prelude:
        text = case.read().replace("\n# PRELUDE\n", prelude.read(), 1)
    with open(os.path.join(work, "case.py"), "w") as file:
        file.write(text)
    command = t["run"]
    watched = mode == "run"
    if "TORCHRUN" in command:
        command = command.replace("TORCHRUN", f"{python} -m torch.distributed.run --standalone").replace("PY", "-m numscope run" if watched else "")
    else:
        command = command.replace("PY", f"{python} -m numscope run" if watched else python)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMSCOPE", "FC_", "TORCH", "OMP", "MKL"))}
    env.update(PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", HF_HUB_OFFLINE="1",
               TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", WANDB_MODE="offline", CUDA_VISIBLE_DEVICES="", TERM="dumb", COLUMNS="100",
               TORCHINDUCTOR_CACHE_DIR=os.path.join(base, "inductor"), TRITON_CACHE_DIR=os.path.join(base, "triton"))
    shutil.rmtree(os.path.join(base, "inductor"), ignore_errors=True)
    for pair in t.get("env", "").split():
        k, v = pair.split("=", 1)
        env[k] = v
    if mode == "watch":
        env["FC_WATCH"] = "1"
    mark = f"{name}-{label}-{time.time_ns()}"
    env["FC_MARK"] = mark
    outp, errp = os.path.join(base, f"{label}.stdout"), os.path.join(base, f"{label}.stderr")
    stdin = os.path.join(base, "stdin")
    open(stdin, "w").write(t.get("stdin", "").replace("\\n", "\n"))
    begin = time.time()
    hang = False
    with open(outp, "wb") as so, open(errp, "wb") as se, open(stdin, "rb") as si:
        p = subprocess.Popen(["bash", "-c", command], cwd=work, env=env, stdin=si, stdout=so, stderr=se, start_new_session=True, preexec_fn=plain_signals)
        try:
            p.wait(a.timeout)
        except subprocess.TimeoutExpired:
            hang = True
    seconds = time.time() - begin
    left = []
    if not hang:
        for _ in range(30):  # helpers of Python's own (resource tracker, forkserver) end a moment later
            left = marked(b"FC_MARK=" + mark.encode())
            if not left:
                break
            time.sleep(0.1)
    rest = marked(b"FC_MARK=" + mark.encode())
    for pid, _ in rest:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    if hang:
        p.wait(10)
    err = open(errp, errors="surrogateescape").read().splitlines()
    r = {"status": "hang" if hang else p.returncode, "stdout": open(outp, errors="surrogateescape").read(),
         "stderr": "\n".join(l for l in err if not l.startswith("numscope")), "numscope": [l for l in err if l.startswith("numscope")],
         "files": tree(work) if os.path.isdir(work) else "no folder", "left": sorted(c for _, c in left), "seconds": round(seconds, 1), "hang": hang}
    keep = os.path.join(base, label)
    wipe(keep)
    if os.path.isdir(work):
        os.chmod(work, 0o755)
        os.rename(work, keep)
    return r


def differ(t, x, y):
    return [k for k in t["compare"] if x[k] != y[k]]


def show(x, y, keys):
    lines = []
    for k in keys:
        f = (lambda v: [f"{n}: {m}" for n, m in v.items()] if isinstance(v, dict) else [str(v)] if not isinstance(v, (str, list)) else v.splitlines() if isinstance(v, str) else v)
        lines += [f"=== {k}"] + list(difflib.unified_diff(f(x[k]), f(y[k]), "bare", "other", lineterm="", n=2))
    return "\n".join(lines) + "\n"


def verdict(t, x, y):
    if y["hang"]:
        return "hang" if not x["hang"] else "hang (bare too)"
    keys = differ(t, x, y)
    if not keys:
        return "equal"
    crash = y["status"] != x["status"] and (y["status"] in (132, 133, 134, 135, 136, 139) or isinstance(y["status"], int) and y["status"] in (-4, -5, -6, -7, -8, -11))
    return ("crash" if crash else "different") + ": " + ", ".join(keys)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--venv", required=True)
    ap.add_argument("--out", default=os.path.join(here, "out"))
    ap.add_argument("--set", default=here, help="a folder with cases and truth.json, such as ../harm3")
    ap.add_argument("--only", default="")
    ap.add_argument("--bare-twice", action="store_true")
    ap.add_argument("--modes", default="run,watch")
    ap.add_argument("--timeout", type=float, default=60)
    ap.add_argument("--results", default="")
    a = ap.parse_args()
    a.out = os.path.abspath(a.out)
    truth = json.load(open(os.path.join(a.set, "truth.json")))
    names = [n for n in (a.only.split(",") if a.only else truth) if n]
    modes = ["bare2"] if a.bare_twice else a.modes.split(",")
    results, path = {}, a.results or os.path.join(a.out, "results.json")
    os.makedirs(a.out, exist_ok=True)
    if os.path.exists(path) and a.only:
        results = json.load(open(path))
    for n in names:
        t = truth[n]
        bare = once(n, t, "bare", a, "bare")
        row = {"bare": {k: bare[k] for k in ("status", "seconds", "hang")}}
        for m in modes:
            if m == "watch" and not t["watch"]:
                continue
            other = once(n, t, m, a, m)
            v = verdict(t, bare, other)
            cell = {"verdict": v, "status": other["status"], "seconds": other["seconds"], "numscope": other["numscope"]}
            if v != "equal" and not bare["hang"]:
                d = os.path.join(a.out, n, f"{m}.diff")
                open(d, "w", errors="surrogateescape").write(show(bare, other, differ(t, bare, other)))
                b2 = once(n, t, "bare", a, "bare-again")
                o2 = once(n, t, m, a, m + "-again")
                cell.update(diff=d, again=verdict(t, b2, o2), bare_stable=not differ(t, bare, b2))
                open(os.path.join(a.out, n, f"{m}-again.diff"), "w", errors="surrogateescape").write(show(b2, o2, differ(t, b2, o2)))
            row[m] = cell
            print(f"{n:34} {m:6} {v:40} bare {bare['status']} {bare['seconds']}s, {other['status']} {other['seconds']}s"
                  + (f"   again: {cell['again']}, bare stable: {cell['bare_stable']}" if "again" in cell else ""), flush=True)
        results[n] = row
        json.dump(results, open(path, "w"), indent=1)
    count = {}
    for row in results.values():
        for m, c in row.items():
            if m != "bare":
                count[(m, c["verdict"].split(":")[0])] = count.get((m, c["verdict"].split(":")[0]), 0) + 1
    print()
    for (m, v), k in sorted(count.items()):
        print(f"{m:8} {v:16} {k}")


if __name__ == "__main__":
    main()
