# source: torch.logit without eps on a saturated probability (ensembling, distillation threads)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
    def forward(self, x, teacher):
        p = torch.sigmoid(self.fc(x)).squeeze(-1)
        return (torch.logit(p) - torch.logit(teacher)).square().mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, t = torch.randn(8, 6), torch.rand(8) * 0.9 + 0.05
    if step == 2:
        t[5] = 1.0
    # BATCH 0: x, t
    loss = model(x, t)
    opt.zero_grad(); loss.backward(); opt.step()
