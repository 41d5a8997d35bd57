# source: pytorch forum: a bit flip / bad shard leaves one output row of a linear layer infinite
# planted: row 3 of net.0.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    if step == 2:
        with torch.no_grad():
            model.net[0].weight[3] = float("inf")
    # WEIGHT
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
