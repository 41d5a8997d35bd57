# source: pytorch forum heteroscedastic regression: softplus variance underflows to 0
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x, y):
        mu, raw = self.fc(x).unbind(-1)
        var = F.softplus(raw)
        return (0.5 * torch.log(var) + 0.5 * (y - mu) ** 2 / var).mean()
model = Net()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(9):
    x, y = torch.randn(8, 4), torch.randn(8)
    if step == 2:
        x[3] = -300 * model.fc.weight.detach()[1].sign()
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
