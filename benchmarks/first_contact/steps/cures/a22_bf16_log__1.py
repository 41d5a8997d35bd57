import numscope
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 2)

    def forward(self, x):
        p = torch.sigmoid(self.net(x))
        return torch.log(p) + torch.log(1 - p)


model = Net().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
numscope.high_precision(model)
for step in range(8):
    x = torch.randn(8, 8, dtype=torch.bfloat16)
    if step == 2:
        x[4] = 12 * model.net.weight.detach()[0].sign()
    loss = -model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
