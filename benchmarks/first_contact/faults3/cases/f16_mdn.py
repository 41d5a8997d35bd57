"""Mixture density network whose likelihood is summed in probability space; an outlier lies far from every component.
Source: keras-team/keras#2586, keras-team/keras#1061, tonyduan/mixture-density-network#4."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(16)
CURED = "--cured" in sys.argv


class MDN(nn.Module):
    def __init__(self, hidden=32, k=5):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(1, hidden), nn.Tanh())
        self.pi, self.mu, self.sigma = (nn.Linear(hidden, k) for _ in range(3))

    def forward(self, x):
        h = self.hidden(x)
        return self.pi(h).log_softmax(-1), self.mu(h), nn.functional.elu(self.sigma(h)) + 1.001


def mdn_loss(log_pi, mu, sigma, y):
    logp = -0.5 * ((y - mu) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)
    if CURED:
        return -torch.logsumexp(log_pi + logp, -1).mean()
    likelihood = (log_pi.exp() * logp.exp()).sum(-1)
    return -torch.log(likelihood).mean()  # FAULT


model = MDN()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
y_all = torch.rand(800, 1) * 20 - 10
x_all = torch.sin(0.75 * y_all) * 7 + y_all * 0.5 + torch.randn(800, 1)
x_all, y_all = x_all / 10, y_all / 5
y_all[413] = 250.0  # a typing error in the table
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x_all, y_all), batch_size=32)
losses = []
for step, (x, y) in enumerate(loader):
    loss = mdn_loss(*model(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
