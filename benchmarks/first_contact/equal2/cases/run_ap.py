# part A, numscope parity --resume 4 alone: names of scripts as words; results in ap_results.json
import json, os, re, runpy, shutil, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__)); work = os.path.dirname(here); venv = os.path.join(os.path.dirname(work), "venv", "bin")
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONHASHSEED="0"); os.environ["PATH"] = venv + ":" + os.environ["PATH"]
import socket
def port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return str(p)
def lines(text): return [l for l in text.splitlines() if re.match(r"(\d+|val|tune|end|accuracy|temperature) ", l) or re.match(r"\d+ ", l)]
def call(cmd, cwd, limit=240):
    t = time.time()
    try: p = subprocess.run(cmd, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit); return dict(rc=p.returncode, out=p.stdout, err=p.stderr, s=round(time.time() - t, 1))
    except subprocess.TimeoutExpired as e: return dict(rc="timeout", out=str(e.stdout), err=str(e.stderr), s=limit)
def parity(script, base, tag, extra, ranks):
    cwd = os.path.join(base, tag); os.makedirs(cwd); r = ranks[0]
    cmd = [f"{venv}/numscope", "parity", "--resume", "4", "--"] + ([f"{venv}/torchrun", "--master-port", port(), "--nproc-per-node", str(r)] if r > 1 else [f"{venv}/python"]) + [script, *extra]
    return call(cmd, cwd)
where = os.path.join(work, "scratch_ap"); path = os.path.join(work, "ap_results.json"); results = json.load(open(path)) if os.path.exists(path) else {}
for short in [w for w in sys.argv[1:] if w != "--cured"]:
    [name] = [f for f in os.listdir(os.path.join(here, "a")) if f.startswith(short)]; script = os.path.join(here, "a", name); m = re.search(r"# ranks: ([\d ]+)", open(script).read(600)); ranks = [int(v) for v in m[1].split()] if m else [1]
    base = os.path.join(where, short); shutil.rmtree(base, ignore_errors=True); os.makedirs(base)
    results[name + (" cured" if "--cured" in sys.argv else "")] = r = parity(script, base, "parity", ["--fault"] if name[0] == "f" and "--cured" not in sys.argv else [], ranks); json.dump(results, open(path, "w"))
    print("===", name, "rc", r["rc"], r["s"], "s:", r["out"][-1200:], "|", "\n".join(l for l in r["err"].splitlines() if not l.startswith(("numscope: a:", "numscope: b:")))[-500:], flush=True)
