import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        h = F.relu(self.a(x))
        h = h.clone().sub_(0.0).div_(h.sum(-1, keepdim=True)).log_()
        return self.b(h.clamp_min(-5))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    x = torch.randn(6, 4)
    if step == 2:
        with torch.no_grad(): net.a.bias.fill_(-30)
    else:
        with torch.no_grad(): net.a.bias.fill_(5)
    loss = net(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
