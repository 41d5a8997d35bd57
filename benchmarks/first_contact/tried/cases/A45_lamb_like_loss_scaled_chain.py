# source: pytorch forum: sqrt of a variance by E[x^2]-E[x]^2 that rounds below 0, then a division by it
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        h = self.fc(x)
        var = h.pow(2).mean(-1, keepdim=True) - h.mean(-1, keepdim=True).pow(2)
        return F.cross_entropy(self.head((h - h.mean(-1, keepdim=True)) / torch.sqrt(var)), y)
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(64, 4), torch.randint(0, 2, (64,))
    if step == 2:
        with torch.no_grad():
            model.fc.weight[:] = model.fc.weight[:1]
            model.fc.bias[:] = 1.0
            model.fc.weight.add_(1e-7 * torch.randn(8, 4))
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
