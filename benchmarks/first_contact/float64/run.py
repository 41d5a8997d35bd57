"""Run the set: python run.py [--only PREFIX] [--again N]. Bare and watched, two at a time; writes results.json beside it.

NUMSCOPE_ENV names the environment that has numscope (default ../venv). The lines that are right are marked # FAULT in each case.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import time

here = pathlib.Path(__file__).parent.resolve()
env_dir = pathlib.Path(os.environ.get("NUMSCOPE_ENV", here.parent / "venv"))
CHECK = {"w": "float64", "p": "float64", "c": "eager", "h": "float64"}
environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONHASHSEED="0")
environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(here.parent / "cache"))
environment.setdefault("TORCH_EXTENSIONS_DIR", str(here.parent / "ext"))


def call(command, limit):
    began = time.time()
    try:
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=limit)
        status, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as e:
        status, out, err = "hang", str(e.stdout or ""), str(e.stderr or "")
    return dict(status=status, out=out, err=err.replace(str(here) + "/", "").replace(str(here.parent), ".."), seconds=round(time.time() - began, 1))


def one(path):
    name = path.stem
    text = path.read_text()
    check = (re.search(r"^# CHECK (\S+)", text, re.M) or [0, CHECK[name[0]]])[1]
    lines = [i for i, t in enumerate(text.splitlines(), 1) if "# FAULT" in t]
    bare = call([env_dir / "bin/python", str(path.relative_to(here))], 200)
    watched = call([env_dir / "bin/numscope", "run", "--check", check, str(path.relative_to(here))], 400)
    said = [l for l in watched["err"].splitlines() if l.startswith("numscope:")]
    alerts = [l for l in said if l.startswith("numscope: alert:")]
    named = [int(n) for a in alerts for n in re.findall(re.escape(path.name) + r":(\d+)", a)]
    return dict(
        name=name, check=check, lines=lines, bare=bare, watched=watched, alerts=alerts,
        rules=[re.match(r"numscope: alert: step \d+: ([^:]*)", a)[1] for a in alerts if re.match(r"numscope: alert: step \d+: ([^:]*)", a)],
        named=named, line_right=bool(set(named) & set(lines)),
        same=bare["out"] == watched["out"] and bare["status"] == watched["status"],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="results.json")
    args = parser.parse_args()
    paths = [p for p in sorted((here / "cases").glob("*.py")) if any(p.stem.startswith(o) for o in args.only.split(","))]
    target = here / args.out
    results = {r["name"]: r for r in json.loads(target.read_text())} if target.exists() else {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for r in pool.map(one, paths):
            results[r["name"]] = r
            target.write_text(json.dumps(sorted(results.values(), key=lambda r: r["name"]), indent=1))
            print(f"{r['name']:45} {'same' if r['same'] else 'OTHER'} {r['bare']['seconds']:>5} {r['watched']['seconds']:>5} status {r['bare']['status']}/{r['watched']['status']} line {r['line_right']} {r['rules']}", flush=True)
            for a in r["alerts"]:
                print("    ", a[:420], flush=True)
