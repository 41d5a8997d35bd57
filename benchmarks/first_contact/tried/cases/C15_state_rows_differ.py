# source: as C14 with Adam: row 1 of the weight is nan, exp_avg_sq is nan in rows 1 and 5
# planted: row 1 of fc.weight; rows 1, 5 of exp_avg_sq
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
    model.fc.weight[1] = float("nan")
    opt.state[model.fc.weight]["exp_avg_sq"][[1, 5]] = float("nan")
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
