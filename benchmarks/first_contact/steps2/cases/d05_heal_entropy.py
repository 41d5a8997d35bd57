import torch, torch.nn.functional as F, hashlib, sys
from torch import nn
torch.manual_seed(0); twin = "twin" in sys.argv  # the twin drops the bad batch itself
def sha(*models, opts=()):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().float().numpy().tobytes())
    for o in opts:
        for s in o.state.values():
            for k in sorted(s): h.update(torch.as_tensor(s[k]).float().numpy().tobytes()) if s[k] is not None else 0
    print("SHA", h.hexdigest()[:16], "finite", all(bool(v.isfinite().all()) for m in models for v in m.state_dict().values() if v.is_floating_point()), torch.rand(1).item())

W = "written" in sys.argv
class Gate(nn.Module):
    def __init__(self): super().__init__(); self.r = nn.Linear(4, 3); self.healed = False
    def forward(self, x):
        p = self.r(x).softmax(-1)
        if self.healed: logp = torch.log(p.clamp_min(1e-6))
        else: logp = torch.log(p)
        return p, -(p * logp).sum(-1)
class Net(nn.Module):
    def __init__(self): super().__init__(); self.g, self.e = Gate(), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        p, ent = self.g(x)
        return sum(p[:, i:i + 1] * e(x) for i, e in enumerate(self.e)), ent.mean()
net = Net(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(8):
    x = torch.randn(6, 4) * (300 if step in (3, 5) else 1)
    if W and step == 4: net.g.healed = True
    y, ent = net(x); loss = y.square().mean() * 1e-3 - 0.01 * ent
    opt.zero_grad(); loss.backward()
    if not (W and step == 3): opt.step()
    print(step, loss.item())
sha(net, opts=[opt])
