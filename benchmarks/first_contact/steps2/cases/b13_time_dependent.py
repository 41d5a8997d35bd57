import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

t0 = time.perf_counter()
class Net(nn.Module):  # a schedule by the clock
    def __init__(self):
        super().__init__(); self.a, self.out = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        tau = 1.0 + (time.perf_counter() - t0)
        return self.out((self.a(x) / tau).softmax(-1))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(8):
    loss = net(torch.randn(4, 4)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
