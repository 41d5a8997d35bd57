# source: own optimizers (LARS/LAMB ports): g / g.norm() of a zero gradient
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class NormSGD(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    g = p.grad
                    trust = p.norm() / g.norm()
                    p.sub_(group["lr"] * trust * g)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.b(F.relu(self.a(x))), y)
model = Net()  # MODEL
opt = NormSGD(model.parameters(), 1e-3)
for step in range(9):
    x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
    if step == 2:
        with torch.no_grad():
            model.a.bias.fill_(-100.0)
    loss = model(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
