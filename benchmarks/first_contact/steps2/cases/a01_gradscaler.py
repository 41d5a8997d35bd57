import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class RMSNorm(nn.Module):  # T5LayerNorm without its float32 cast
    def __init__(self, n):
        super().__init__(); self.w = nn.Parameter(torch.ones(n))
    def forward(self, x):
        var = x.pow(2).mean(-1, keepdim=True)
        return self.w * x * torch.rsqrt(var + 1e-6)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.fc, self.norm, self.out = nn.Linear(8, 16), RMSNorm(16), nn.Linear(16, 1)
    def forward(self, x):
        h = self.fc(x)
        return self.out(self.norm(h) + h.square())
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-5); scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(4):
    x = torch.randn(4, 8) * (600 if step == 2 else 1)
    with torch.autocast("cpu", dtype=torch.float16):
        y = net(x)
    loss = y.float().square().mean() * 1e-6
    opt.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
    ok(step, loss, net)
