# source: pytorch/pytorch Beta NLL threads: labels of exactly 1 (and above) for a density on (0, 1)
# planted rows: 4 and 13 of 20
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class BetaHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x, y):
        a, b = (F.softplus(self.fc(x)) + 1.5).unbind(-1)
        norm = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
        return (norm - (a - 1) * torch.log(y) - (b - 1) * torch.log(1 - y)).mean()
model = BetaHead()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(20, 4), torch.rand(20) * 0.9 + 0.05
    if step == 2:
        y[4], y[13] = 1.0, 1.5
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
