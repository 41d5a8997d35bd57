# source: resume threads: SGD momentum, row 1 of a weight and of its momentum_buffer nan
# planted: row 1 of fc.weight and of momentum_buffer
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(5, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.head(torch.tanh(self.fc(x))), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
model(torch.randn(4, 5), torch.zeros(4).long()).backward()
opt.step()
with torch.no_grad():
    model.fc.weight[1] = float("nan")
    opt.state[model.fc.weight]["momentum_buffer"][1] = float("nan")
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
