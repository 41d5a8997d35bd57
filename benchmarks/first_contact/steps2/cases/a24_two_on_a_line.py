import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Cos(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(4, 4)
    def forward(self, x, y):
        a = self.a(x)
        return (a * y).sum(-1) / ((a * a).sum(-1).sqrt() * (y * y).sum(-1).sqrt())
net = Cos(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    y = torch.randn(6, 4)
    if step == 2: y[2] = 0
    loss = (1 - net(torch.randn(6, 4), y)).mean(); opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
