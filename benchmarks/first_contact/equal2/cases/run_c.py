# runs part C: each pair bare (forked), then numscope parity; results in c_results.json
import json, os, re, runpy, shutil, subprocess, sys, time, socket
here = os.path.dirname(os.path.abspath(__file__)); work = os.path.dirname(here); venv = os.path.join(os.path.dirname(work), "venv", "bin")
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"); os.environ["PATH"] = venv + ":" + os.environ["PATH"]
import torch, torch.distributed, torch.distributed.fsdp, accelerate
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, TrainerCallback
CASES = [  # name, ranks and words of A, of B
 ("F01 noworld", 1, "lm.py", 2, "lm.py --do noworld"), ("F02 means of ranks", 1, "lm.py", 2, "lm.py --do means"), ("F03 means of micro-batches", 1, "lm.py", 1, "lm.py --micro 4 --do means"),
 ("F04 not divided", 1, "lm.py --do means", 1, "lm.py --micro 4 --do undivided"), ("F05 unwrapped", 1, "lm.py", 2, "lm.py --do unwrapped"), ("F06 zeroed between", 1, "lm.py", 1, "lm.py --micro 4 --do zeroed"),
 ("F07 no_sync always", 1, "lm.py", 2, "lm.py --micro 2 --do nosync"), ("F08 norms not reduced", 1, "lm.py", 2, "lm.py --dp hand --do skipnorms"), ("F09 bias not reduced", 1, "lm.py --adam", 2, "lm.py --adam --dp hand --do skipbias"),
 ("F10 tied reduced twice", 1, "lm.py", 2, "lm.py --dp hand --do tiedtwice"), ("F11 summed", 1, "lm.py", 2, "lm.py --dp hand --do summed"), ("F12 clipped before reduction", 1, "lm.py --clip", 2, "lm.py --clip --dp hand --do cliplocal"),
 ("F13 bf16 all-reduce", 1, "lm.py", 2, "lm.py --dp hand --do bf16"), ("F14 bf16 hook", 1, "lm.py", 2, "lm.py --do bf16hook"), ("F15 weights by rank", 1, "lm.py", 2, "lm.py --dp hand --do seed"),
 ("F16 order by rank", 1, "lm.py", 2, "lm.py --do dataseed"), ("F17 same shard", 1, "lm.py", 2, "lm.py --do sameshard"), ("F18 lr times world", 1, "lm.py", 2, "lm.py --do lr"),
 ("F19 sp norms", 1, "sp.py", 2, "sp.py --sp --do nonorms"), ("F20 sp bias", 1, "sp.py", 2, "sp.py --sp --do nobias"), ("F21 tp input gradient", 1, "sp.py", 2, "sp.py --do noinputreduce"), ("F22 tp bias each rank", 1, "sp.py", 2, "sp.py --do biaseach"),
 ("F23 sp loss halved", 1, "sp.py", 2, "sp.py --sp --do seqmean"), ("F24 g reduces backward", 1, "sp.py", 2, "sp.py --do reducetwice"), ("F25 fsdp local clip", 1, "dt.py --clip", 2, "dt.py --clip --do localclip"), ("F26 fsdp bf16 reduce", 1, "dt.py", 2, "dt.py --do bf16reduce"), ("F27 fsdp sum/global", 1, "dt.py", 2, "dt.py --do sumddp"),
 ("F28 experts not divided", 1, "moe.py", 2, "moe.py --do experts"), ("F29 router not reduced", 1, "moe.py", 2, "moe.py --do router"), ("F30 trainer local tokens", 1, "hf.py", 2, "hf.py --batch 4 --do localtokens"), ("F31 accelerate not divided", 1, "acc.py", 1, "acc.py --micro 4 --do nodivide"),
 ("H01 accumulation", 1, "lm.py", 1, "lm.py --micro 4"), ("H02 ddp", 1, "lm.py --adam --clip", 2, "lm.py --adam --clip"), ("H03 ddp accumulation", 1, "lm.py", 2, "lm.py --micro 2"), ("H04 by hand", 1, "lm.py --clip", 2, "lm.py --clip --dp hand"),
 ("H05 recompute", 1, "lm.py", 2, "lm.py --recompute"), ("H06 compile", 1, "lm.py", 1, "lm.py --compile"), ("H07 bf16", 1, "lm.py --bf16", 2, "lm.py --bf16"), ("H08 sequence parallel", 1, "sp.py", 2, "sp.py --sp"), ("H09 tp by hand", 1, "sp.py", 2, "sp.py"),
 ("H10 fsdp clip", 1, "dt.py --clip", 2, "dt.py --clip"), ("H11 tp dtensor", 1, "dt.py", 2, "dt.py --mode tp"), ("H12 experts", 1, "moe.py", 2, "moe.py"), ("H13 trainer ranks", 1, "hf.py", 2, "hf.py --batch 4"), ("H14 accelerate ranks", 1, "acc.py", 2, "acc.py --micro 2"), ("H15 trainer accumulation clip", 1, "hf.py --do clip", 1, "hf.py --batch 2 --accumulate 4 --do clip"),
]
def port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return str(p)
def fork(words, cwd, tag, ranks):
    pids, p = [], port(); script = os.path.join(here, "c", words.split()[0])
    for r in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                os.chdir(cwd); fd = os.open(f"{tag}.{r}.out", os.O_CREAT | os.O_WRONLY | os.O_TRUNC); os.dup2(fd, 1); os.dup2(fd, 2)
                if ranks > 1: os.environ.update(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=p)
                torch.set_num_threads(1); sys.argv = [script, *words.split()[1:], "--steps", "3"]; sys.path[0] = os.path.dirname(script); runpy.run_path(script, run_name="__main__"); sys.stdout.flush(); os._exit(0)
            except BaseException:
                import traceback; traceback.print_exc(); sys.stdout.flush(); os._exit(1)
        pids.append(pid)
    [os.waitpid(q, 0) for q in pids]; text = open(os.path.join(cwd, f"{tag}.0.out")).read(); got = re.findall(r"^\d+ .*$", text, re.M)
    if len(got) < 3: print("BARE FAILED", words, text[-1500:])
    return got
full = "--full" in sys.argv
def record(words, cwd, folder, ranks, tag):
    # as "python -m numscope parity record DIR script" on each rank, in processes forked from this one
    pids, p = [], port(); script = os.path.join(here, "c", words.split()[0])
    for r in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.chdir(cwd); fd = os.open(f"{tag}.{r}.out", os.O_CREAT | os.O_WRONLY | os.O_TRUNC); os.dup2(fd, 1); os.dup2(fd, 2); code = 99
            if ranks > 1: os.environ.update(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=p)
            try:
                torch.set_num_threads(1); sys.argv = ["numscope", "parity", "record", folder, script, *words.split()[1:]]
                from numscope.cli.command import main
                code = main() or 0
            except SystemExit as e: code = e.code if isinstance(e.code, int) else (0 if e.code is None else 1)
            except BaseException:
                import traceback; traceback.print_exc()
            sys.stdout.flush(); os._exit(code)
        pids.append(pid)
    rc = [os.waitstatus_to_exitcode(os.waitpid(q, 0)[1]) for q in pids]; return re.findall(r"^\d+ .*$", open(os.path.join(cwd, f"{tag}.0.out")).read(), re.M), rc
path = os.path.join(work, "c_full.json" if full else "c_results.json"); results = json.load(open(path)) if os.path.exists(path) else {}
for name, ra, wa, rb, wb in CASES:
    if set(sys.argv[1:]) - {"--full", "--bare"} and name.split()[0] not in sys.argv[1:]: continue
    cwd = os.path.join(work, "scratch_c", name.split()[0]); shutil.rmtree(cwd, ignore_errors=True); os.makedirs(cwd); t = time.time()
    a, b = fork(wa, cwd, "a", ra), fork(wb, cwd, "b", rb)
    if not full and "--bare" not in sys.argv:
        la, xa = record(wa, cwd, "A", ra, "ra"); lb, xb = record(wb, cwd, "B", rb, "rb"); p = subprocess.run([f"{venv}/numscope", "parity", "A", "B"], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE); bits = [len(l) > 0 and l == w[:len(l)] for l, w in zip((la, lb), (a, b))]
        results[name] = dict(rc=p.returncode, out=p.stdout, err=p.stderr, a=a, b=b, logs=[la, lb], bits=bits, s=round(time.time() - t)); json.dump(results, open(path, "w"))
        print(f"=== {name} rc={p.returncode} records={xa, xb} bits={bits} lines={len(la), len(lb)} {time.time() - t:.0f}s\n{p.stdout}{p.stderr[-500:]}", flush=True); continue
    if "--bare" in sys.argv: print(name, a[:1], b[:1], sep="\n  "); continue
    def command(r, words):
        w = words.split(); return ([f"{venv}/python"] if r == 1 else [f"{venv}/torchrun", "--master-port", port(), "--nproc-per-node", str(r)]) + [os.path.join(here, "c", w[0]), *w[1:]]
    try: p = subprocess.run([f"{venv}/numscope", "parity", "2", "rec", "--", *command(ra, wa), "--", *command(rb, wb)], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300); rc, out, err = p.returncode, p.stdout, p.stderr
    except subprocess.TimeoutExpired as e: rc, out, err = "timeout", str(e.stdout), str(e.stderr)
    logs = [re.findall(r"^\d+ .*$", open(os.path.join(cwd, "rec", f)).read(), re.M) if os.path.exists(os.path.join(cwd, "rec", f)) else [] for f in ("a.log", "b.log")]
    bits = [len(l) > 0 and l == w[:len(l)] for l, w in zip(logs, (a, b))]
    results[name] = dict(rc=rc, out=out, err=err, a=a, b=b, logs=logs, bits=bits, s=round(time.time() - t)); json.dump(results, open(path, "w"))
    print(f"=== {name} rc={rc} bits={bits} lines={[len(l) for l in logs]} {time.time() - t:.0f}s\n{out}{err[-600:] if rc not in (0, 1) else ''}", flush=True)
