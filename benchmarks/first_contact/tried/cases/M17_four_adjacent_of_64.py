# how many rows are found: M17_four_adjacent_of_64
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.fc(x.log()).sum()
model = Net()
x = torch.ones(64, 2)
x[[8, 9, 10, 11]] = -1
model(x).backward()
torch.optim.SGD(model.parameters()).step()
