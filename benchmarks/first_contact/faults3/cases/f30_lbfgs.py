"""Maximum likelihood fit of a small network and its noise by LBFGS without a line search: a step makes sigma negative.
Source: pytorch/pytorch#8824 (LBFGS oversteps without a line search), pyro forum (unconstrained scale)."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(30)
CURED = "--cured" in sys.argv


class Heteroscedastic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))
        self.sigma = nn.Parameter(torch.tensor(3.0))

    def nll(self, x, y):
        sigma = nn.functional.softplus(self.sigma) + 1e-3 if CURED else self.sigma
        return (0.5 * ((y - self.net(x)) / sigma) ** 2 + torch.log(sigma)).mean()  # FAULT


x = torch.linspace(-2, 2, 80)[:, None]
y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
model = Heteroscedastic()
opt = torch.optim.LBFGS(model.parameters(), lr=0.25, max_iter=4, history_size=6)
losses = []
for step in range(25):
    def closure():
        opt.zero_grad()
        loss = model.nll(x, y)
        loss.backward()
        return loss

    losses.append(float(opt.step(closure)))
    print(step, losses[-1], model.sigma.item())
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
