import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):  # whitening by eigenvectors; equal eigenvalues
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x):
        h = self.a(x)
        c = h.t() @ h / len(h)
        w, v = torch.linalg.eigh(c)
        return self.b(h @ v @ torch.diag((w + 1e-2).rsqrt()))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(4):
    x = torch.randn(8, 4)
    if step == 2:
        x = torch.cat([torch.eye(4), -torch.eye(4)])
        with torch.no_grad(): net.a.weight.copy_(torch.eye(4)); net.a.bias.zero_()
    loss = net(x).square().mean() + net(x).sum()
    opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
