# shortest script of B08, B35: time x batch; sample 2 is bad, at time 4
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(2, 3)
    def forward(self, x, y):
        return (self.lstm(x)[0][-1].sum(-1) - y).square().mean()
model = Net()
x, y = torch.ones(6, 4, 2), torch.ones(4)
x[4, 2] = float("nan")
model(x, y).backward()
torch.optim.SGD(model.parameters()).step()
