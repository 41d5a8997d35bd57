# source: pytorch/pytorch#18057-like: eps=1e-8 added to norms in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8, bias=False)
    def forward(self, a, b, y):
        u, v = self.fc(a), self.fc(b)
        cos = (u * v).sum(-1) / (u.norm(dim=-1) * v.norm(dim=-1) + 1e-8)
        return (cos - y).square().mean()
model = Net().to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(9):
    x, b, y = (torch.randn(10, 8).to(torch.float16) for _ in range(3))
    y = y[:, 0]
    if step == 2:
        x[3] = 0
    # BATCH 0: x, b, y
    loss = model(x, b, y)
    opt.zero_grad(); loss.backward(); opt.step()
