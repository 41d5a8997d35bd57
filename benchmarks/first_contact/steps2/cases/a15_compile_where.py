import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        h = (self.a(x) * (torch.arange(8) != 3)).abs()
        h = torch.where(h > 0, h.pow(0.5), torch.zeros_like(h))
        return self.b(h)
net = Net(); net.compile(backend="aot_eager"); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(3):
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
