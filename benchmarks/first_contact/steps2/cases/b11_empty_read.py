import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

class Net(nn.Module):  # a buffer that is filled but for its last column
    def __init__(self):
        super().__init__(); self.a, self.out = nn.Linear(4, 7), nn.Linear(8, 1)
    def forward(self, x):
        h = torch.empty(len(x), 8)
        h[:, :7] = torch.tanh(self.a(x))
        return self.out(h.clamp(-1, 1))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
junk = []
for step in range(8):
    for i in range(20): junk.append(torch.randn(4, 8))  # memory comes and goes
    del junk[::2]
    loss = net(torch.randn(4, 4)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
