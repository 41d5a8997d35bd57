import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

seen = {"n": 0}
class Router(nn.Module):  # round-robin routing by a counter outside of the model
    def __init__(self):
        super().__init__(); self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        seen["n"] += 1
        return x + self.experts[seen["n"] % 3](x)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.r, self.out = Router(), nn.Linear(4, 1)
    def forward(self, x): return self.out(self.r(x))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(8):
    loss = net(torch.randn(4, 4)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
