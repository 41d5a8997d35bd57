"""python res.py PREFIX...: one line for each remedy that was said to work."""
import sys, pathlib
from cure import *
for c in sorted((here / "cases").glob("*.py")):
    n = c.name[:-3]
    if not any(n.startswith(p) for p in sys.argv[1:]): continue
    x = first(n)
    print("#", n, trace(here / "runs" / n / "bare"), end=" ")
    if not x or not x.get("culprit"): print("no finding" if not x else "no culprit"); continue
    print(x["culprit"]["op"], "step", x["step"])
    ok = [t for t in x["culprit"]["tried"] if t["worked"]]
    for i, t in enumerate(ok):
        d = here / "runs" / n / f"cure{i}"
        rc = (d / "rc").read_text() if (d / "rc").exists() else "-"
        tr = trace(d)
        print("   ", "CURED" if rc == "0" and not set(tr) - {"."} else "BAD  ", tr, "rc", rc, t["remedy"], "=>", t["outcome"])
    for t in x["culprit"]["tried"]:
        if not t["worked"]: print("    (said no)", t["remedy"], "=>", t["outcome"])
