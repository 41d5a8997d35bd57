# source: pytorch/pytorch where/nan gradient threads: where(p > 0, p * log(p), 0) with p = 0
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)
    def forward(self, x, y):
        h = self.fc(x)
        p = h * (h > 0)
        ent = torch.where(p > 0, p * torch.log(p), torch.zeros_like(p))
        return (ent.sum(-1) - y).square().mean()
model = Net()  # MODEL
with torch.no_grad():
    model.fc.bias.fill_(6.0)
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(9):
    x, y = torch.rand(8, 6), torch.rand(8)
    if step == 2:
        x[1] = -60 * model.fc.weight.detach()[2].sign()
    # BATCH 0: x, y
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
