# lessw2020/Ranger-Deep-Learning-Optimizer#19: Lookahead's slow weights live in an attribute that state_dict() does not have
import hashlib, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class Ranger(torch.optim.RAdam):
    def __init__(self, params, k=6, alpha=0.5, **kw): super().__init__(params, **kw); self.k, self.alpha, self.calls = k, alpha, 0; self.slow = None
    @torch.no_grad()
    def step(self, closure=None):
        ps = [p for g in self.param_groups for p in g["params"]]
        if self.slow is None: self.slow = [p.clone() for p in ps]
        super().step(); self.calls += 1
        if self.calls % self.k == 0:
            for s, p in zip(self.slow, ps): s.lerp_(p, self.alpha); p.copy_(s)
torch.manual_seed(25); net = nn.Sequential(nn.Linear(9, 30), nn.ELU(), nn.Linear(30, 9)); opt = Ranger(net.parameters(), lr=1e-2); i = 0
if os.path.exists("c.pth"):
    c = torch.load("c.pth"); net.load_state_dict(c["model"]); opt.load_state_dict(c["optimizer"]); i = c["i"]
    if not fault: opt.slow, opt.calls = c["slow"]
while i < stop:
    x = torch.randn(8, 9, generator=torch.Generator().manual_seed(i)); loss = (net(x) - x.sin()).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); i += 1; print(i, repr(loss.item()), flush=True)
    if i % 5 == 0: torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "slow": (opt.slow, opt.calls), "i": i}, "c.pth")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
