"""Runs the cases of this folder under ``numscope run`` and prints what was named beside what is true.

    python run.py --venv VENV --out OUT [--only GLOB]
"""

import argparse
import fnmatch
import json
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--venv", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="*")
    asked = parser.parse_args()
    out, python = Path(asked.out).resolve(), Path(asked.venv).resolve() / "bin" / "python"
    out.mkdir(parents=True, exist_ok=True)
    totals = {"fault": 0, "raised": 0, "line": 0, "benign": 0, "silent": 0}
    for name, true in json.loads((HERE / "truth.json").read_text()).items():
        if not fnmatch.fnmatch(name, asked.only):
            continue
        run = f"-m numscope run --json {out / name}.json {name}.py"
        launcher = "-m torch.distributed.run --nproc-per-node 2 " if "torch.distributed.run" in true["run"] else ""
        command = f"{python} {launcher}{run}"
        try:
            done = subprocess.run(
                command, shell=True, cwd=HERE / "cases", capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            status, text = str(done.returncode), done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            status, text = "timeout", ""
        (out / f"{name}.txt").write_text(text)
        op, line = (re.search(rf"^{word}\s+(.*)", text, re.MULTILINE) for word in ("Culprit", "Line"))
        said = os.path.basename(line[1]).split(" ")[0] if line else ""
        totals[true["kind"]] += 1
        if true["kind"] == "benign":
            totals["silent"] += status == "0"
        else:
            totals["raised"] += status != "0" and op is not None
            totals["line"] += bool(said) and any(said in right for right in (true["line"] or "", *true["also_ok"]))
        print(name, status, op[1] if op else "-", said or "-", "true:", true["line"], true["ops"], sep=" | ", flush=True)
    print(totals)


if __name__ == "__main__":
    main()
