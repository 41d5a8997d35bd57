import json, pathlib, subprocess, sys
here = pathlib.Path(__file__).resolve().parents[2]
names = "A02 A05 A06 A08 A14 A16 A21 A22 A24 A30 A31 A32 B01 B03 B08 B13 B15 B20 B22 C02 C03 C08 C11 D01 D04 D06 E03 E05".split()
cases = [next((here / "cases").glob(n + "_*.py")) for n in names]
if "--show" not in sys.argv:
    for mode in ("bare", "ns"):
        jobs = [dict(mode=mode, script=str(c), dir=str(here / "runs" / c.stem / f"harm_{mode}"), trace=True, digest=True, args=["run", "--json", "f.json", "--on-nonfinite", ("note", "warn")[i % 2]]) for i, c in enumerate(cases)]
        (here / f"j_harm_{mode}.json").write_text(json.dumps(jobs))
        subprocess.run([sys.executable, "cases/run/zygote.py", f"j_harm_{mode}.json", str(here / f"mods_{mode}.json")], cwd=here)
for i, c in enumerate(cases):
    a, b = (json.loads((here / "runs" / c.stem / f"harm_{m}" / "trace.json").read_text()) for m in ("bare", "ns"))
    a, b = [e["hash"] for e in a], [e["hash"] for e in b]
    f = json.loads((here / "runs" / c.stem / "harm_ns" / "f.json").read_text())
    fs = f if isinstance(f, list) else f.get("findings", [])
    print(c.stem, ("note", "warn")[i % 2], "EQUAL" if a == b else f"DIFFERS from event {next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))}", len(a), len(b), "rc", *[(here / "runs" / c.stem / f"harm_{m}" / "rc").read_text() for m in ("bare", "ns")], "findings", len(fs))
