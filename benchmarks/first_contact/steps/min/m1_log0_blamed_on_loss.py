import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.log(self.proj(x) * 0))  # log(0): every input of head is -inf


torch.manual_seed(0)
model = Net()
with torch.no_grad():
    model.head.weight.abs_()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
F.cross_entropy(model(torch.rand(8, 4)), torch.zeros(8, dtype=torch.long)).backward()
optimizer.step()
