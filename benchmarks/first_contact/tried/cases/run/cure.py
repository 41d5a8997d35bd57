"""python cure.py PREFIX...: writes each remedy that is reported as working into the source of its case and runs that bare."""
import json, sys, pathlib, subprocess, re, math
here = pathlib.Path(__file__).resolve().parents[2]
HAND = json.loads((here / "cases" / "run" / "hand.json").read_text()) if (here / "cases" / "run" / "hand.json").exists() else {}


def first(n):
    f = here / "runs" / n / "ns" / "f.json"
    if not f.exists(): return None
    j = json.loads(f.read_text())
    fs = j if isinstance(j, list) else j.get("findings", [])
    return fs[0] if fs else None


def code(ev):
    out = ""
    for e in ev:
        if e["e"] == "backward":
            out += "." if math.isfinite(e["loss"]) and e["grads"] else ("L" if not math.isfinite(e["loss"]) else "G")
        elif not (e["params"] and e["state"]):
            out += "P" if not e["params"] else "S"
    return out


def trace(d):
    p = d / "trace.json"
    return code(json.loads(p.read_text())) if p.exists() else "?"


def edit(n, remedy, x):
    """The edited source, or None where it has to be written by hand."""
    s = (here / "cases" / (n + ".py")).read_text()
    step = x["step"]
    if remedy in HAND.get(n, {}):
        for old, new in HAND[n][remedy]:
            assert old in s, (n, old)
            s = s.replace(old, new)
        return s
    m = re.match(r"a batch without rows? ([\d, and]+?) of (\d+)( along dimension (\d+))?", remedy)
    if m:
        rows = [int(r) for r in re.findall(r"\d+", m[1])]
        b = re.search(r"^( *)# BATCH (.*)$", s, re.M)
        if not b: return None
        lines = []
        for part in b[2].split("/"):
            dim, names = part.split(":")
            for name in names.split(","):
                name = name.strip()
                lines.append(f"{b[1]}if step == STEP:\n{b[1]}    {name} = {name}.index_select({int(dim)}, torch.tensor([i for i in range({name}.shape[{int(dim)}]) if i not in {rows}]))")
        return s.replace(b[0], "\n".join(lines))
    h = re.findall(r"numscope\.high_precision\([^()]*\)", remedy)
    if h:
        k = re.search(r"^.*# MODEL.*$", s, re.M)
        return s.replace(k[0], k[0] + "\nimport numscope\n" + "\n".join(h))
    w = re.match(r"(model[\w.\[\]0-9]*?\.(?:weight|bias))(\[.*\]) = 0( and of ([\w, ]+) too)?$", remedy)
    if w:
        k = re.search(r"^( *)# WEIGHT$", s, re.M)
        out = [f"{k[1]}with torch.no_grad():", f"{k[1]}    {w[1]}{w[2]} = 0"]
        for name in (w[4] or "").split(", "):
            if name: out.append(f"{k[1]}    opt.state[{w[1]}]['{name}']{w[2]} = 0")
        return s.replace(k[0], "\n".join(out))
    f = re.match(r"disable_fp8_gemm \(([\w, ]+)\) for model\.([\w.]+)", remedy)
    if f:
        return s.replace("# MODEL", f"\n_s = precision.states(model)['{f[2]}']; _s.plan = _s.plan.with_high({[g.strip() for g in f[1].split(',')]})")
    if remedy.startswith("bfloat16 in place of float16"):
        return s.replace("float16", "bfloat16").replace(".half()", ".bfloat16()").replace("bbfloat16", "bfloat16")
    return None


if __name__ == "__main__":
    jobs, todo = [], []
    for c in sorted((here / "cases").glob("*.py")):
        n = c.name[:-3]
        if not any(n.startswith(p) for p in sys.argv[1:]): continue
        x = first(n)
        if not x or not x.get("culprit"): continue
        bare = trace(here / "runs" / n / "bare")
        events = json.loads((here / "runs" / n / "bare" / "trace.json").read_text()) if (here / "runs" / n / "bare" / "trace.json").exists() else []
        back = [e for e in events if e["e"] == "backward"]
        k = next((i for i, e in enumerate(back) if not (math.isfinite(e["loss"]) and e["grads"])), x["step"])
        for i, t in enumerate(t for t in x["culprit"]["tried"] if t["worked"]):
            s = edit(n, t["remedy"], x)
            if s is None:
                todo.append((n, t["remedy"], x["culprit"]["code"])); continue
            s = s.replace("STEP", str(x["step"] - {"C02_embedding_row_nan_state": 1}.get(n, 0)))
            d = here / "runs" / n / f"cure{i}"
            d.mkdir(parents=True, exist_ok=True)
            (d / (n + ".py")).write_text(s)
            (d / "remedy").write_text(t["remedy"])
            jobs.append(dict(mode="bare", script=str(d / (n + ".py")), dir=str(d), trace=True))
    for t in todo: print("HAND", json.dumps(t))
    if "--dry" not in sys.argv:
        (here / "j_cure.json").write_text(json.dumps(jobs))
        subprocess.run([sys.executable, "cases/run/zygote.py", "j_cure.json", str(here / "mods_bare.json")], cwd=here, stdout=open(here / "cure.log", "a"))
