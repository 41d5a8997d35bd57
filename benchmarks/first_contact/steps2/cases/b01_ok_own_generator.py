import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

g = torch.Generator().manual_seed(7)  # drawn by the script, outside of the model's calls; dropout within
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.d, self.b = nn.Linear(4, 16), nn.Dropout(0.3), nn.Linear(16, 1); self.g = torch.Generator().manual_seed(3)
    def forward(self, x):
        h = self.d(F.relu(self.a(x)))
        return self.b(h + 0.1 * torch.randn(h.shape, generator=self.g))  # a generator kept by the module
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(6):
    x = torch.randn(8, 4, generator=g)
    loss = net(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
sha(net)
