import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)
    def forward(self, x, y):
        return F.cross_entropy(self.a(x), y)

net = LM()
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    y = torch.randint(0, 3, (6,))
    if step == 2:
        y[:] = -100
    loss = net(torch.randn(6, 4), y)
    loss.backward()
    print(step, loss.item(), "gradients finite:", all(bool(p.grad.isfinite().all()) for p in net.parameters()))
    opt.step()
    opt.zero_grad()
print("end")
