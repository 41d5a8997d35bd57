# shortest script of C12: a parameter of the model itself, written through .data before its step
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 2))
    def forward(self, x):
        return (x @ self.weight.t()).sum()
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(4):
    opt.zero_grad()
    if step == 2:
        model.weight.data[1] = float("nan")
    model(torch.ones(4, 2)).backward()
    opt.step()
