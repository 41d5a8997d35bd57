import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Block(nn.Module):  # float16 weights without autocast; GLU overflows; its residual stream, too
    def __init__(self): super().__init__(); self.n, self.g, self.u, self.d = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        h = self.n(x)
        return x + self.d(self.g(h) * self.u(h))
net = nn.Sequential(Block(), Block(), nn.LayerNorm(8), nn.Linear(8, 1)).half(); opt = torch.optim.SGD(net.parameters(), 1e-6)
for step in range(4):
    if step == 2:
        with torch.no_grad(): net[0].g.weight *= 900; net[0].u.weight *= 900
    loss = net(torch.randn(4, 8).half()).float().square().mean(); opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
