# source: pytorch/pytorch#8069, QData/TextAttack#804
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
    def forward(self, x, y):
        u, v = F.normalize(self.fc(x), dim=-1), F.normalize(y, dim=-1)
        cos = (u * v).sum(-1).clamp(-1, 1)
        return torch.acos(cos).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, y = torch.randn(16, 6), torch.randn(16, 6)
    if step == 2:
        y = model.fc(x).detach()
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
