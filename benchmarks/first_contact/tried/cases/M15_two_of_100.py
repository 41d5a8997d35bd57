# how many rows are found: M15_two_of_100
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.fc(x.log()).sum()
model = Net()
x = torch.ones(100, 2)
x[[31, 90]] = -1
model(x).backward()
torch.optim.SGD(model.parameters()).step()
