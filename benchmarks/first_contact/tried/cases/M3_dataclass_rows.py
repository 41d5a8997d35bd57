# shortest script of B04, B29: rows of a batch that is a dataclass
import torch
from dataclasses import dataclass
@dataclass
class Batch:
    x: torch.Tensor
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
    def forward(self, batch):
        return self.fc(batch.x.log()).sum()
model = Net()
x = torch.ones(4, 2)
x[1] = -1
model(Batch(x)).backward()
torch.optim.SGD(model.parameters()).step()
