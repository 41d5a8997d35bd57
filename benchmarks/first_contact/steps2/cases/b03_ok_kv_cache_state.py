import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

class Rec(nn.Module):  # Transformer-XL's memory, a counter, an LRU dict
    def __init__(self):
        super().__init__(); self.q, self.o = nn.Linear(8, 8), nn.Linear(8, 8); self.mem = None; self.n = 0; self.cache = {}
        self.register_buffer("ema", torch.zeros(8))
    def forward(self, x):
        self.n += 1
        key = self.n % 3
        ctx = x if self.mem is None else torch.cat([self.mem, x], 1)
        self.mem = x.detach()[:, -4:]
        if key in self.cache: ctx = torch.cat([ctx, self.cache[key]], 1)
        self.cache[key] = x.detach().mean(1, keepdim=True)
        with torch.no_grad(): self.ema.mul_(0.9).add_(0.1 * x.mean((0, 1)))
        return self.o((self.q(x) @ ctx.transpose(1, 2)).softmax(-1) @ ctx) + self.ema
net = Rec(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(6):
    loss = net(torch.randn(2, 6, 8)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
sha(net)
