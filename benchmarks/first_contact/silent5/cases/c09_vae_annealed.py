import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a VAE whose KL weight is raised from 0 to 1, and starts again twice
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 16))
        self.dec = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 24))

    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1)
        return self.dec(mu + torch.randn_like(mu) * (0.5 * lv).exp()), mu, lv


net = VAE()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
W = torch.randn(4, 24)
for step in range(600):
    beta = min(1.0, (step % 200) / 100)
    x = torch.tanh(torch.randn(64, 4) @ W)
    r, mu, lv = net(x)
    loss = ((r - x) ** 2).sum(1).mean() + beta * (-0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean())
    opt.zero_grad(); loss.backward(); opt.step()
print("steps", 600)
report(net)
