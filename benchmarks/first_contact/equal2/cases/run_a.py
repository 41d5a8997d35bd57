# runs part A: bare (forked from one process), watched and parity; results in a_results.json
import json, os, re, runpy, shutil, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__)); work = os.path.dirname(here); venv = os.path.join(os.path.dirname(work), "venv", "bin")
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONHASHSEED="0"); os.environ["PATH"] = venv + ":" + os.environ["PATH"]
import torch, torch.distributed, torch.distributed.checkpoint, torch.distributed.fsdp
import transformers, accelerate
from transformers import Trainer, TrainingArguments, GPT2LMHeadModel, OPTForCausalLM
import logging, warnings; warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR); logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
import lightning, pytorch_lightning
import socket
def port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return str(p)
def fork(script, argv, cwd, ranks=1, limit=120):
    pids, p = [], port()
    for r in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                os.chdir(cwd); fd = os.open(f"../{os.path.basename(cwd)}.{r}.out", os.O_CREAT | os.O_WRONLY | os.O_APPEND); os.dup2(fd, 1); os.dup2(fd, 2)
                if ranks > 1: os.environ.update(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=p)
                torch.set_num_threads(1); sys.argv = [script, *argv]; sys.path[0] = os.path.dirname(script); runpy.run_path(script, run_name="__main__"); sys.stdout.flush(); os._exit(0)
            except BaseException:
                import traceback; traceback.print_exc(); sys.stdout.flush(); os._exit(1)
        pids.append(pid)
    return [os.waitpid(p, 0)[1] for p in pids]
def lines(text): return [l for l in text.splitlines() if re.match(r"(\d+|val|tune|end|accuracy|temperature) ", l) or re.match(r"\d+ ", l)]
def bare(script, legs, base, tag, extra, ranks):
    cwd = os.path.join(base, tag); os.makedirs(cwd); out = []
    log = os.path.join(base, f"{tag}.0.out")
    for leg, stop in enumerate(legs):
        before = os.path.getsize(log) if os.path.exists(log) else 0
        rc = fork(script, ["--stop", str(stop), *extra], cwd, ranks[min(leg, len(ranks) - 1)])
        text = open(log).read()[before:]; out.append(dict(rc=rc, lines=lines(text), tail=text[-1500:] if any(rc) else ""))
    return out
def call(cmd, cwd, limit=240):
    t = time.time()
    try: p = subprocess.run(cmd, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit); return dict(rc=p.returncode, out=p.stdout, err=p.stderr, s=round(time.time() - t, 1))
    except subprocess.TimeoutExpired as e: return dict(rc="timeout", out=str(e.stdout), err=str(e.stderr), s=limit)
def watched(script, legs, base, tag, extra, ranks):
    # as the console script does: numscope.cli.command.main with its argv, in a process forked from this one
    cwd = os.path.join(base, tag); os.makedirs(cwd); out = []
    for leg, stop in enumerate(legs):
        r = ranks[min(leg, len(ranks) - 1)]; pids, p, t = [], port(), time.time(); files = [os.path.join(base, f"{tag}.{leg}.{k}") for k in range(r)]
        for k in range(r):
            pid = os.fork()
            if pid == 0:
                os.chdir(cwd); os.dup2(os.open(files[k] + ".out", os.O_CREAT | os.O_WRONLY), 1); os.dup2(os.open(files[k] + ".err", os.O_CREAT | os.O_WRONLY), 2)
                if r > 1: os.environ.update(RANK=str(k), LOCAL_RANK=str(k), WORLD_SIZE=str(r), LOCAL_WORLD_SIZE=str(r), MASTER_ADDR="127.0.0.1", MASTER_PORT=p)
                torch.set_num_threads(1); sys.argv = ["numscope", "run", "--log-dir", "../" + tag + "_log", script, "--stop", str(stop), *extra]; code = 99
                try:
                    from numscope.cli.command import main
                    code = main() or 0
                except SystemExit as e: code = e.code if isinstance(e.code, int) else (0 if e.code is None else 1)
                except BaseException:
                    import traceback; traceback.print_exc()
                sys.stdout.flush(); sys.stderr.flush(); os._exit(code)
            pids.append(pid)
        rc = [os.waitstatus_to_exitcode(os.waitpid(q, 0)[1]) for q in pids]; text = open(files[0] + ".out").read()
        out.append(dict(rc=rc, out=text, err="".join(open(f + ".err").read() for f in files), lines=lines(text), s=round(time.time() - t, 1)))
    return out
def parity(script, base, tag, extra, ranks):
    cwd = os.path.join(base, tag); os.makedirs(cwd); r = ranks[0]
    cmd = [f"{venv}/numscope", "parity", "--resume", "4", "--"] + ([f"{venv}/torchrun", "--master-port", port(), "--nproc-per-node", str(r)] if r > 1 else [f"{venv}/python"]) + [script, *extra]
    return call(cmd, cwd)
where = os.path.join(work, "scratch_a"); results_path = os.path.join(work, "a_results.json")
results = json.load(open(results_path)) if os.path.exists(results_path) else {}
names = sys.argv[1:] or sorted(f for f in os.listdir(os.path.join(here, "a")) if f.endswith(".py"))
do_parity = set("f01 f02 f03 f05 f06 f07 f08 f11 f14 f15 f19 f20 f22 f23 f28 f29 h01 h02 h03 h08 h11 h13".split())
for name in names:
    script = os.path.join(here, "a", name); head = open(script).read(600); m = re.search(r"# ranks: ([\d ]+)", head); ranks = [int(v) for v in m[1].split()] if m else [1]
    m = re.search(r"# stops: ([\d ]+)", head); legs = [int(v) for v in m[1].split()] if m else [12, 20]
    base = os.path.join(where, name[:3]); shutil.rmtree(base, ignore_errors=True); os.makedirs(base); R = {"ranks": ranks, "legs": legs}; t = time.time()
    if name[0] == "f":
        R["whole"] = bare(script, legs[-1:], base, "whole", [], ranks); R["cured"] = bare(script, legs, base, "cured", [], ranks); R["bare"] = bare(script, legs, base, "bare", ["--fault"], ranks)
        R["watched"] = watched(script, legs, base, "watched", ["--fault"], ranks)
        if name[:3] in do_parity and not os.environ.get("NO_PARITY"): R["parity"] = parity(script, base, "parity", ["--fault"], ranks)
    else:
        R["whole"] = bare(script, legs[-1:], base, "whole", [], ranks); R["bare"] = bare(script, legs, base, "bare", [], ranks); R["watched"] = watched(script, legs, base, "watched", [], ranks)
        if name[:3] in do_parity and not os.environ.get("NO_PARITY"): R["parity"] = parity(script, base, "parity", [], ranks)
    cured = R.get("cured", R["bare"])
    R["cured_is_exact"] = cured[-1]["lines"] == R["whole"][0]["lines"][-len(cured[-1]["lines"]):]
    R["fault_differs"] = name[0] == "f" and R["bare"][-1]["lines"] != cured[-1]["lines"]
    R["same_bits"] = [a["lines"] for a in R["bare"]] == [a["lines"] for a in R["watched"]]
    results[name] = R; json.dump(results, open(results_path, "w"))
    alerts = [l for w in R["watched"][1:] for l in re.findall(r"numscope: alert:(?:.*\n)(?:    .*\n)*", w["err"] + "\n")]
    print(f"=== {name} {time.time() - t:.0f}s exact={R['cured_is_exact']} differs={R['fault_differs']} bits={R['same_bits']} rc={[w['rc'] for w in R['watched']]} bare={[b['rc'] for b in R['bare']]}")
    print("".join(alerts) or "(no alert)"); first = re.findall(r"numscope: alert:(?:.*\n)(?:    .*\n)*", R["watched"][0]["err"] + "\n")
    if first: print("FIRST LEG:", "".join(first))
    if "parity" in R: print("PARITY rc", R["parity"]["rc"], R["parity"]["s"], "s:", R["parity"]["out"][-1500:], R["parity"]["err"][-700:])
    sys.stdout.flush()
