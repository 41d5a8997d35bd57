import torch
from torch import nn

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.out = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
        nn.init.uniform_(self.gate.weight, 1e-4, 2e-4)
    def forward(self, x):
        g = self.gate(x)
        n = g / g.sum(-1, keepdim=True)
        return self.out(x) * n

net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-6)
for step in range(4):
    y = net(torch.rand(16, 16) + 0.5)
    y.square().mean().backward()
    print(step, bool(y.isfinite().all()), all(bool(p.grad.isfinite().all()) for p in net.parameters()))
    opt.step()
    opt.zero_grad()
