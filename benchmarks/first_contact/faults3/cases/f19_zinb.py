"""Count autoencoder (DCA / scVI like) with a zero-inflated negative binomial likelihood and a learned gene dispersion.
Source: scverse/scvi-tools#2965 (logGamma overflows above some inverse dispersion), theislab/dca."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(19)
CURED = "--cured" in sys.argv


def zinb_nll(x, mu, theta, pi):
    eps = 1e-8
    log_theta_mu = torch.log(theta + mu + eps)
    case_zero = F.softplus(-pi + theta * (torch.log(theta + eps) - log_theta_mu)) - F.softplus(-pi)
    case_nonzero = (-F.softplus(-pi) - pi + theta * (torch.log(theta + eps) - log_theta_mu) + x * (torch.log(mu + eps) - log_theta_mu)
                    + torch.lgamma(x + theta) - torch.lgamma(theta) - torch.lgamma(x + 1))
    return -torch.where(x < 0.5, case_zero, case_nonzero).sum(1).mean()


class CountAE(nn.Module):
    def __init__(self, genes=30, latent=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(genes, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, latent))
        self.dec = nn.Sequential(nn.Linear(latent, 32), nn.ReLU())
        self.mu, self.pi = nn.Linear(32, genes), nn.Linear(32, genes)
        self.log_theta = nn.Parameter(torch.zeros(genes))

    def forward(self, x):
        h = self.dec(self.enc(torch.log1p(x)))
        size = x.sum(1, keepdim=True)
        log_theta = self.log_theta.clamp(-8, 8) if CURED else self.log_theta
        theta = torch.exp(log_theta)  # FAULT
        return size * self.mu(h).softmax(-1), theta, self.pi(h)


rates = torch.rand(30) * 8
data = torch.poisson(rates.expand(640, -1))
model = CountAE()
opt = torch.optim.Adam([{"params": [p for n, p in model.named_parameters() if n != "log_theta"]}, {"params": [model.log_theta], "lr": 25.0}], lr=1e-3)
losses = []
for step, part in enumerate(data.split(32)):
    loss = zinb_nll(part, *model(part))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_([model.log_theta], 5.0)
    opt.step()
    losses.append(loss.item())
    print(step, losses[-1], model.log_theta.max().item())
print("FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in [*model.parameters(), model.enc[1].running_var]))
