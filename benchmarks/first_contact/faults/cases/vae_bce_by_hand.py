"""VAE reconstruction with x*log(p) + (1-x)*log(1-p): sigmoid saturates to 1.
Source: hwalsuklee/tensorflow-mnist-VAE#4, RasmussenLab/vamb#12."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
enc, dec = nn.Linear(16, 4), nn.Linear(2, 16)
opt = torch.optim.Adagrad([*enc.parameters(), *dec.parameters()], lr=0.1)


def elbo(x):
    mu, logvar = enc(x).chunk(2, 1)
    z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
    p = torch.sigmoid(dec(z))
    if CURED:
        p = p.clamp(1e-6, 1 - 1e-6)
    rec = x * torch.log(p) + (1 - x) * torch.log(1 - p)  # FAULT
    return -(rec.sum(1) + 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1)).mean()


for step in range(5):
    if step == 3:
        dec.bias.data[2] = 40.0  # a pixel that is always on, learned by too large a rate
    loss = elbo((torch.rand(8, 16) < 0.5).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
