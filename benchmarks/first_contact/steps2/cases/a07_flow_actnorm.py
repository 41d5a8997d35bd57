import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class ActNorm(nn.Module):  # Glow: scale from the first batch
    def __init__(self, n):
        super().__init__(); self.loc, self.scale = nn.Parameter(torch.zeros(n)), nn.Parameter(torch.ones(n)); self.done = False
    def forward(self, x):
        if not self.done:
            with torch.no_grad():
                self.loc.copy_(-x.mean(0)); self.scale.copy_(1 / x.std(0))
            self.done = True
        return self.scale * (x + self.loc), torch.log(self.scale.abs()).sum()
class Flow(nn.Module):
    def __init__(self):
        super().__init__(); self.norm, self.net = ActNorm(4), nn.Linear(2, 4)
    def forward(self, x):
        x, logdet = self.norm(x)
        a, b = x.chunk(2, -1)
        s, t = self.net(a).chunk(2, -1)
        return torch.cat([a, b * s.exp() + t], -1), logdet + s.sum(-1)
net = Flow(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(3):
    x = torch.randn(8, 4); x[:, 1] = 0.5  # a constant channel
    z, logdet = net(x)
    loss = (0.5 * z.square().sum(-1) - logdet).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
