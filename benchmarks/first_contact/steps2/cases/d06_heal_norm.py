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

W = "written" in sys.argv  # cosine similarity by hand, with accumulation over two calls a step
class Cos(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(4, 8, bias=False); self.healed = False
    def forward(self, x):
        e = self.a(x)
        s = (e * e).sum(-1, keepdim=True)
        n = torch.sqrt(s + 1e-6) if self.healed else torch.sqrt(s)
        return e / (n + 1e-3)
net = nn.Sequential(Cos(), nn.Linear(8, 2)); opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(8):
    if W and step == 4: net[0].healed = True
    for micro in range(2):
        x = torch.randn(6, 4)
        if step in (3, 5) and micro == 1:
            x[2] = 0  # an empty row
        loss = net(x).square().mean(); loss.backward()
    if not (W and step == 3): opt.step()
    opt.zero_grad(); print(step, loss.item())
sha(net, opts=[opt])
