import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from numscope import precision


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(32, 32, bias=False), nn.Linear(32, 2)
        with torch.no_grad():
            self.proj.weight.copy_(torch.rand(32, 32) * 0.01 + 0.001)
            self.proj.weight[7, :] = 1e-4
            self.proj.weight[7, 0] = 0.01

    def forward(self, x):
        return self.head(torch.log(self.proj(x)))


model = Net()
precision.convert(model, precision.MXFP4(), layers="proj")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(8):
    x = torch.rand(8, 32)
    x[:, 0] = 0
    loss = F.cross_entropy(model(x), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
