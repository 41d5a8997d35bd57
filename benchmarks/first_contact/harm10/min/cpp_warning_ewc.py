# bare (status 1): torch C++ warning of float(pen) names this script (module __main__), which the filter below makes an error. Watched (status 0): it names numscope/replay/noting.py, and the filter does not match.
import warnings; warnings.filterwarnings("error", category=UserWarning, module="__main__")
#: what: EWC over three tasks: Fisher by per-sample backward in eval mode, deepcopied old models, a head grown with add_module between tasks, optimizer.add_param_group
#: source: https://github.com/talreiss/PANDA/issues/3

import hashlib, os, random, sys
import numpy as np, torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(1)
def seed(s=0):
    torch.manual_seed(s); np.random.seed(s); random.seed(s)
seed(0)
def sha(*xs):
    h = hashlib.sha256()
    def put(x):
        if isinstance(x, torch.Tensor):
            t = x.detach().cpu()
            if t.is_sparse: t = t.coalesce(); put(t.indices()); put(t.values()); return
            t = t.contiguous()
            h.update(str((t.dtype, tuple(t.shape))).encode()); h.update(t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"0")
        elif isinstance(x, np.ndarray): h.update(x.tobytes())
        elif isinstance(x, dict):
            for k in x: h.update(str(k).encode()); put(x[k])
        elif isinstance(x, (list, tuple)):
            for v in x: put(v)
        else: h.update(repr(x).encode())
    for x in xs: put(x)
    return h.hexdigest()[:16]
def states(): return sha(torch.get_rng_state(), np.random.get_state()[1], random.getstate())
def show(model=None, opt=None, *more):
    if model is not None:
        print("weights", sha({k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}), "grads", sha([p.grad if p.grad is None else p.grad for p in model.parameters()]))
        hooks = lambda m: list(m._forward_hooks.values()) + list(m._forward_pre_hooks.values()) + list(m._backward_hooks.values())
        print("training", sorted({m.training for m in model.modules()}))
    if opt is not None: print("optimizer", sha([{k: v for k, v in s.items()} for s in opt.state.values()]))
    for m in more: print("more", sha(m))
    print("rng", states(), "grad mode", torch.is_grad_enabled(), flush=True)
def watch(*models, **k):
    if os.environ.get("FC_WATCH"):
        import numscope
        return [numscope.watch(m, **k) for m in models]

import copy
class Net(nn.Module):
    def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU()); self.heads = nn.ModuleList()
    def grow(self): self.heads.append(nn.Linear(16, 2)); return self.heads[-1]
    def forward(self, x, t): return self.heads[t](self.body(x))
m = Net(); h = m.grow(); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9); mem = []
for t in range(3):
    if t: opt.add_param_group({"params": list(m.grow().parameters()), "lr": 0.1})
    for s in range(8):
        x = torch.randn(8, 6); y = (x[:, t] > 0).long(); l = F.cross_entropy(m(x, t), y); pen = sum((f * (p - o) ** 2).sum() for fish, old in mem for (n, p) in m.named_parameters() if n in fish for f, o in [(fish[n], old[n])]); opt.zero_grad(); (l + 50 * pen).backward(); opt.step()
    fish = {n: torch.zeros_like(p) for n, p in m.named_parameters()}; m.eval()
    for i in range(6):
        m.zero_grad(); x = torch.randn(1, 6); F.nll_loss(F.log_softmax(m(x, t), 1), m(x, t).argmax(1)).backward()
        for n, p in m.named_parameters(): fish[n] += (p.grad ** 2 / 6 if p.grad is not None else 0)
    m.train(); mem.append((fish, {n: p.detach().clone() for n, p in m.named_parameters()})); print(t, l.item(), float(pen), sha(fish)); old = copy.deepcopy(m)
show(m, opt); show(old)
