# source: resume threads: a row of a linear layer is 1e30 and its exp_avg_sq is inf
# planted: row 2 of fc1.weight, with state
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 1)
    def forward(self, x, y):
        return (self.fc2(F.relu(self.fc1(x))).squeeze(-1) - y).square().mean()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
model(torch.randn(4, 6), torch.randn(4)).backward()
opt.step()
with torch.no_grad():
    model.fc1.weight[2] = 1e30
    opt.state[model.fc1.weight]["exp_avg_sq"][2] = float("inf")
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 6), torch.randn(8)
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
