import json, pathlib, subprocess, sys, re
from cure import first, trace, here
jobs = []
for c in sorted((here / "cases").glob("D*.py")):
    x = first(c.stem)
    for t in x["culprit"]["tried"] if x else ():
        f = re.match(r"disable_fp8_gemm \(([\w, ]+)\) for model\.([\w.]+)", t["remedy"])
        if f and t["worked"]:
            d = here / "runs" / c.stem / "fp8"; d.mkdir(exist_ok=True)
            (d / "c.yaml").write_text(f"keep:\n  enabled: true\n  layers:\n    layer_names: [{f[2]}]\n  disable_fp8_gemm:\n    enabled: true\n    gemms: [{f[1]}]\n")
            jobs.append(dict(mode="ns", script=str(c), dir=str(d), trace=True, args=["run", "--on-nonfinite", "off", "--config", "c.yaml"]))
(here / "j_fp8.json").write_text(json.dumps(jobs))
subprocess.run([sys.executable, "cases/run/zygote.py", "j_fp8.json", str(here / "mods_ns.json")], cwd=here)
for j in jobs: print(j["dir"].split("/")[-2], trace(pathlib.Path(j["dir"])))
