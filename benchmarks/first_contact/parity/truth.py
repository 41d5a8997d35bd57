"""The truth, without numscope: gradients as the optimizer gets them and weights, two steps, both layouts, plain torch.
python truth.py one CASE... (plain), torchrun truth.py many CASE... : writes truth/CASE.SIDE.RANK.pt; python truth.py compare CASE...
CASE may end in +b: the second layout without ranks."""
import os, runpy, sys, re, json, traceback
import torch, torch.distributed as dist
class Enough(BaseException): pass
here = os.path.dirname(os.path.abspath(__file__))
STRIP = re.compile(r"(?:^|(?<=\.))(module|_orig_mod|_checkpoint_wrapped_module)\.")
def full(t): return t.full_tensor().detach().clone() if hasattr(t, "full_tensor") else t.detach().clone()
if sys.argv[1] != "compare":
    sys.path.insert(0, os.path.join(here, "cases"))
    rank = int(os.environ.get("RANK", 0))
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    steps = []
    def hook(opt, a, k):
        f = sys._getframe()
        model = None
        while f and model is None:
            for space in (f.f_locals, f.f_globals):
                m = space.get("model")
                if isinstance(m, torch.nn.Module): model = m; break
            f = f.f_back
        if len(steps) == 3: raise Enough
        held = {id(p) for g in opt.param_groups for p in g["params"]}
        steps.append(({STRIP.sub("", n): None if p.grad is None else full(p.grad) for n, p in model.named_parameters()},
                      {STRIP.sub("", n): full(p) for n, p in model.named_parameters()},
                      [n for n, p in model.named_parameters() if id(p) not in held]))
    register_optimizer_step_pre_hook(hook)
    os.makedirs(os.path.join(here, "truth"), exist_ok=True)
    for case in sys.argv[2:]:
        name, b = case.removesuffix("+b"), case.endswith("+b")
        side = "b" if b or int(os.environ.get("WORLD_SIZE", 1)) > 1 else "a"
        for m in ("tiny", "tp"): sys.modules.pop(m, None)
        steps.clear(); sys.argv = [name] + ["--b"] * b
        try: runpy.run_path(os.path.join(here, "cases", name + ".py"), run_name="__main__")
        except Enough: pass
        except Exception: traceback.print_exc()
        torch.save(steps[:3], os.path.join(here, "truth", f"{name}.{side}.{rank}.pt"))
        print(name, side, rank, len(steps), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
else:
    out = {}
    for case in sys.argv[2:]:
        P = lambda s, r: os.path.join(here, "truth", f"{case}.{s}.{r}.pt")
        if not (os.path.exists(P("a", 0)) and os.path.exists(P("b", 0))): out[case] = "no truth"; continue
        a = torch.load(P("a", 0)); ranks = [torch.load(P("b", r)) for r in range(2) if os.path.exists(P("b", r))]
        lines = []
        for s in range(min(2, len(a), *(len(r) for r in ranks))):
            for what in (1, 0):
                bad = []
                for n, x in a[s][what].items():
                    ys = [r[s][what].get(n, "absent") for r in ranks]
                    if any(isinstance(y, str) for y in ys): bad.append(f"{n}: absent in B"); continue
                    if x is None or any(y is None for y in ys):
                        if not (x is None and all(y is None for y in ys)): bad.append(f"{n}: none in {'A' if x is None else 'B'}")
                        continue
                    if ys[0].shape != x.shape:
                        for d in range(x.dim()):
                            c = torch.cat(ys, d)
                            if c.shape == x.shape: ys = [c]; break
                    res = []
                    for y in ys:
                        k = float((x * y).sum() / (x * x).sum().clamp_min(1e-30))
                        e = float((y - x).norm() / x.norm().clamp_min(1e-12)); r = float((y - k * x).norm() / x.norm().clamp_min(1e-12))
                        res.append((e, k, r))
                    apart = max(float((y - ys[0]).norm() / x.norm().clamp_min(1e-12)) for y in ys)
                    if max(e for e, _, _ in res) > 2e-5 and float(x.norm()) > 1e-7: bad.append(f"{n}: " + " | ".join(f"off {e:.2g} factor {k:.4g} rest {r:.2g}" for e, k, r in res) + (f" ranks apart {apart:.2g}" if apart > 1e-6 else ""))
                lines.append(f"step {s} {'weights' if what else 'grads'}: {len(bad)} of {len(a[s][what])} differ" + (": " + "; ".join(bad[:2] + (["..."] + bad[-2:] if len(bad) > 4 else bad[2:])) if bad else ""))
        for r in ranks:
            if r and r[0][2]: lines.append(f"optimizer lacks {len(r[0][2])} parameters"); break
        out[case] = lines
    json.dump(out, open(os.path.join(here, "truth.json"), "w"), indent=1)
    for c, l in out.items(): print(c, *(l if isinstance(l, list) else [l]), sep="\n   ")
