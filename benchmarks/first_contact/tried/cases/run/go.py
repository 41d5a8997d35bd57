"""python go.py PREFIX...: bare and numscope runs of those cases."""
import json, sys, pathlib, subprocess
here = pathlib.Path(__file__).resolve().parents[2]
jobs = []
extra = ["--log-dir", "logs", "--check", "capsule"] if "--capsule" in sys.argv else []
for c in sorted((here / "cases").glob("*.py")):
    if not any(c.name.startswith(p) for p in sys.argv[1:]): continue
    n = c.name[:-3]
    jobs.append(dict(mode="bare", script=str(c), dir=str(here / "runs" / n / "bare"), trace=True))
    jobs.append(dict(mode="ns", script=str(c), dir=str(here / "runs" / n / "ns"), args=["run", "--json", "f.json", *extra]))
(here / "j.json").write_text(json.dumps(jobs))
for mode in ("bare", "ns"):
    todo = [dict(j, modules=str(here / f"mods_{mode}.json")) for j in jobs if j["mode"] == mode]
    (here / f"j_{mode}.json").write_text(json.dumps(todo))
    subprocess.run([sys.executable, "cases/run/zygote.py", f"j_{mode}.json", str(here / f"mods_{mode}.json")], cwd=here)
