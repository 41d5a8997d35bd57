# source: resume threads: AdamW, row 3 of the weight, exp_avg and exp_avg_sq all nan
# planted: row 3 of fc.weight, exp_avg, exp_avg_sq
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(5, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.head(torch.tanh(self.fc(x))), y)
model = Net()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
model(torch.randn(4, 5), torch.zeros(4).long()).backward()
opt.step()
with torch.no_grad():
    for t in (model.fc.weight, opt.state[model.fc.weight]["exp_avg"], opt.state[model.fc.weight]["exp_avg_sq"]):
        t[3] = float("nan")
# WEIGHT
for step in range(9):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
