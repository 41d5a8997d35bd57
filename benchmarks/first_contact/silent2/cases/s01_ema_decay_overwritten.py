"""EMA of a denoiser: step() assigns self.decay, so the decay used next is 1 - min(decay, ...) of the last one, and the EMA is the raw model.
Source: https://github.com/huggingface/diffusers/issues/1864
Truth: the last decay that was used (0.99 expected) and the distance of the EMA from the online weights.
Could a tool know: no. An EMA in the script is arithmetic on tensors; its intended decay is nowhere.
"""
import sys, copy, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class EMA:
    def __init__(self, model, decay=0.99):
        self.model, self.decay, self.n, self.last = copy.deepcopy(model).requires_grad_(False), decay, 0, None
    @torch.no_grad()
    def step(self, online):
        self.n += 1
        value = (1 + self.n) / (10 + self.n)
        if HEALTHY:
            one_minus = 1 - min(self.decay, value)
        else:
            self.decay = 1 - min(self.decay, value)
            one_minus = self.decay
        self.last = 1 - one_minus
        for e, p in zip(self.model.parameters(), online.parameters()):
            e.sub_(one_minus * (e - p))

class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(50, 32); self.inp = nn.Linear(2, 32)
        self.net = nn.Sequential(nn.SiLU(), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 2))
    def forward(self, x, t):
        return self.net(self.inp(x) + self.time(t))

model = Denoiser(); ema = EMA(model)
opt = torch.optim.AdamW(model.parameters(), 2e-3)
abar = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 50), 0)
for step in range(200):
    a = torch.rand(64) * 6.28
    x0 = torch.stack([a.cos(), a.sin()], 1)
    t = torch.randint(0, 50, (64,)); noise = torch.randn_like(x0)
    xt = abar[t, None].sqrt() * x0 + (1 - abar[t, None]).sqrt() * noise
    loss = F.mse_loss(model(xt, t), noise)
    opt.zero_grad(); loss.backward(); opt.step(); ema.step(model)
d = sum((a - b).norm() for a, b in zip(ema.model.parameters(), model.parameters()))
print(f"TRUTH last decay used {ema.last:.3f} distance to online {d:.3f} loss {loss:.3f}")
