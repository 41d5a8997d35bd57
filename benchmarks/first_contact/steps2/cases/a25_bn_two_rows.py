import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):  # two rows a batch, batch norm needs two
    def __init__(self):
        super().__init__(); self.a, self.n, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
    def forward(self, x): return self.b(torch.tanh(self.n(self.a(torch.log(x)))))
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    x = torch.rand(2, 4) + 0.5
    if step == 2: x[1, 2] = -0.25
    loss = net(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); ok(step, loss, net)
