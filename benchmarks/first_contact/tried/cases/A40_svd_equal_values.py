# source: pytorch/pytorch#18225-like: the gradient of svd where singular values are equal
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 16)
    def forward(self, x, base, y):
        m = self.fc(x).view(-1, 4, 4) * 0.0 + base if y is None else self.fc(x).view(-1, 4, 4) + base
        u, s, v = torch.linalg.svd(m)
        return (u @ v - torch.eye(4)).square().mean() + 0.1 * (u[..., 0] * v[..., 1, :]).sum(-1).mean()
model = Net()  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(9):
    x, base = torch.randn(6, 4), torch.randn(6, 4, 4)
    if step == 2:
        base[2] = torch.eye(4) - model.fc(x[2:3]).view(4, 4).detach()
    # BATCH 0: x, base
    loss = model(x, base, 1)
    opt.zero_grad(); loss.backward(); opt.step()
