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

class Ff(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x): return self.b(self.a(x).square()) * 0.01
class Net(nn.Module):
    def __init__(self): super().__init__(); self.ff, self.n, self.out = nn.ModuleList(Ff() for _ in range(2)), nn.LayerNorm(8), nn.Linear(8, 1)
    def forward(self, x):
        for f in self.ff: x = x + f(x)
        return self.out(self.n(x))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2, momentum=0.9)  # autocast float16: a(x)**2 overflows from step 3 on
if "written" in sys.argv: import numscope
for step in range(8):
    x = torch.randn(6, 8) * (700 if step >= 3 else 1)
    if "written" in sys.argv and step == 4:
        for name in sys.argv[2:]: numscope.high_precision(net.get_submodule(name))
    with torch.autocast("cpu", dtype=torch.float16): y = net(x)
    loss = y.float().square().mean(); loss.backward()
    if not ((twin or "written" in sys.argv) and step == 3): opt.step()
    opt.zero_grad(); print(step, loss.item())
sha(net, opts=[opt])
