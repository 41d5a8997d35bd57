# source: resume threads: a nan row in one layer's weight, a nan exp_avg in another layer's state
# planted: row 2 of fc.weight; exp_avg of head.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(5, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.head(torch.tanh(self.fc(x))), y)
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
model(torch.randn(4, 5), torch.zeros(4).long()).backward()
opt.step()
with torch.no_grad():
    model.fc.weight[2] = float("nan")
    opt.state[model.head.weight]["exp_avg"][1, 3] = float("nan")
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
