# source: pytorch forum "loss inf": an unscaled target column, squared error
# planted rows: 11 of 24
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
    def forward(self, x, y):
        return ((self.net(x).squeeze(-1) - y) ** 2).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(24, 5), torch.randn(24)
    if step == 2:
        y[11] = 1e30
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
