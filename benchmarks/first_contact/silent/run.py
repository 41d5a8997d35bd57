"""Runs each case of the silent sets and its twin under `numscope run` with default options, and collects what alerts said.

    VENV/bin/python silent/run.py --out OUT [--sets silent,silent5] [--only a*,s*] [--jobs 2] [--timeout 120]

Cases run in forked children of a process that has imported torch and numscope (three seconds less each); those of several ranks under
torchrun. OUT/alerts.json has by set, case and twin ("fault", "twin"): status, seconds, and each alert's step, rule and text; a case
that is there already is not run again.
"""

import argparse
import json
import os
import re
import runpy
import signal
import sys
import time
import warnings
from fnmatch import fnmatch
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed

import numscope.cli.command
import numscope.scope.watching

HERE = Path(__file__).resolve().parent.parent
SETS = "silent,silent2,silent3,silent4,silent5,silent6"
ALERT = re.compile(r"^numscope: alert: step (\d+)(?:, [^:]*)?: ([^:]+): (.*)$", re.MULTILINE)
LAST = re.compile(r"^numscope: watched .*$", re.MULTILINE)


def start(case: Path, is_twin: bool, base: Path) -> int:
    """Returns the process's number; it leads a group."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    work = base.with_suffix("")
    work.mkdir(exist_ok=True)
    os.chdir(work)
    for name, fd in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{base}.{name}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644), fd)
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    words = ["run", str(case), *(["--healthy"] if is_twin else [])]
    if "init_process_group(" in (text := case.read_text()) or "ranks: 2" in text or case.stem.startswith("a_rank_"):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "numscope", *words]
        os.execv(sys.executable, launcher)
    sys.argv = ["numscope", *words]
    code = 0
    try:
        runpy.run_module("numscope", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def result(base: Path, status: int, seconds: float) -> dict[str, object]:
    said = Path(f"{base}.err").read_text(errors="replace")
    alerts = [{"step": int(step), "rule": rule, "text": text.replace(str(HERE), "…")} for step, rule, text in ALERT.findall(said)]
    return {"status": status, "seconds": round(seconds, 1), "alerts": alerts, "last": (LAST.findall(said) or [""])[-1]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0)
    given = parser.parse_args()
    out: Path = given.out.resolve()
    table = out / "alerts.json"
    found = json.loads(table.read_text()) if table.exists() else {}
    torch.set_num_threads(1)
    warnings.simplefilter("default")
    waiting = []
    for name in given.sets.split(","):
        (out / name).mkdir(parents=True, exist_ok=True)
        for case in sorted((HERE / name / "cases").glob("[a-z]*.py")):
            if any(fnmatch(case.stem, one) for one in given.only.split(",")):
                twins = ("fault",) if case.stem[0] in "cd" else ("fault", "twin")  # c: healthy longer runs; d: for --on-nonfinite skip
                waiting += [(name, case, which) for which in twins if which not in found.get(name, {}).get(case.stem, {})]
    running: dict[int, tuple[str, Path, str, Path, float]] = {}
    while waiting or running:
        while waiting and len(running) < given.jobs:
            name, case, which = waiting.pop(0)
            base = out / name / (case.stem + ("--healthy" if which == "twin" else ""))
            running[start(case, which == "twin", base)] = (name, case, which, base, time.monotonic())
        for pid, (name, case, which, base, began) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() - began > given.timeout:
                os.killpg(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                done = pid
            if done:
                del running[pid]
                one = result(base, os.waitstatus_to_exitcode(status), time.monotonic() - began)
                found.setdefault(name, {}).setdefault(case.stem, {})[which] = one
                table.write_text(json.dumps(found, indent=1, sort_keys=True))
                print(name, case.stem, which, one["status"], one["seconds"], *(alert["rule"] for alert in one["alerts"]), sep="\t", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
