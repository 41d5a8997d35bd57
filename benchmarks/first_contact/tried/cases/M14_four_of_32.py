# how many rows are found: M14_four_of_32
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.fc(x.log()).sum()
model = Net()
x = torch.ones(32, 2)
x[[1, 9, 17, 30]] = -1
model(x).backward()
torch.optim.SGD(model.parameters()).step()
