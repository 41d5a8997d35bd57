# source: pytorch forum "BCE by hand gives nan": y*log(p) + (1-y)*log(1-p)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 1)
    def forward(self, x, y):
        p = torch.sigmoid(self.fc(x)).squeeze(-1)
        return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, y = torch.randn(8, 8), torch.randint(0, 2, (8,)).float()
    if step == 2:
        x[5] = 100 * model.fc.weight.detach()[0].sign()
        y[5] = 1.0
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
