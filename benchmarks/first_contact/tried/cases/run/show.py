import json, sys, pathlib
here = pathlib.Path(__file__).resolve().parents[2]
for d in sorted((here / "runs").iterdir()):
    if not any(d.name.startswith(p) for p in sys.argv[1:]): continue
    tr = d / "bare" / "trace.json"
    ev = json.loads(tr.read_text()) if tr.exists() else []
    import math
    b = s = 0; bad = None; kinds = ""
    for e in ev:
        if e["e"] == "backward":
            ok = math.isfinite(e["loss"]) and e["grads"]; kinds += "." if ok else ("L" if not math.isfinite(e["loss"]) else "G")
        else: kinds += "" if e["params"] and e["state"] else ("P" if not e["params"] else "S")
    print("#", d.name, "bare rc", (d/"bare"/"rc").read_text(), kinds, "| ns rc", (d/"ns"/"rc").read_text() if (d/"ns"/"rc").exists() else None)
    f = d / "ns" / "f.json"
    if not (d/"ns"/"rc").exists(): continue
    if not f.exists(): print("   no json:", (d/"ns"/"out.txt").read_text()[-300:]); continue
    j = json.loads(f.read_text())
    fs = j if isinstance(j, list) else j.get("findings", j)
    for x in fs[:1] if isinstance(fs, list) else []:
        c = x.get("culprit")
        print("   step", x.get("step"), x.get("kind"), "contained" if x.get("contained") else "", "|", (f"{c['op']} {c['file'].split('/')[-1]}:{c['line']} `{c['code'].strip()[:100]}` {c['reason']}" if c else x.get("replay")))
        if c:
            print("   ADVICE", c["advice"])
            for t in c["tried"]: print("   TRIED", "OK " if t["worked"] else "NO ", t["remedy"], "=>", t["outcome"])
