import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", h.hexdigest())
def bad(opt):
    return any(p.grad is not None and not p.grad.isfinite().all() for g in opt.param_groups for p in g["params"])
class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), wd=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, wd=wd))
        self.t = 0
    @torch.no_grad()
    def step(self):
        self.t += 1
        for g in self.param_groups:
            lr = g["lr"] * min(1.0, self.t / 10)
            for p in g["params"]:
                if p.grad is None: continue
                s = self.state[p]
                if not s: s["m"] = torch.zeros_like(p)
                m, (b1, b2) = s["m"], g["betas"]
                p.mul_(1 - lr * g["wd"]).add_(m.mul(b1).add(p.grad, alpha=1 - b1).sign(), alpha=-lr)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
opt = Lion(net.parameters(), lr=2e-3, wd=0.1)
for step in range(60):
    for g in opt.param_groups: g["lr"] = 2e-3 * (1 - step / 60)
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    if step in (3, 4, 5, 28):
        x[0, 1] = float("inf")
    before = [b.clone() for b in net.buffers()]
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    if DROP and bad(opt):
        for b, o in zip(net.buffers(), before): b.copy_(o)
    else:
        opt.step()
    net.zero_grad()
print("T", opt.t)
bits(net)
