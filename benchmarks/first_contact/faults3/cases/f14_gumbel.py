"""A discrete VAE (DALL-E style) with Gumbel noise from uniform numbers in half precision.
Source: chainer/chainer#1839 ("x may be zero and it is passed to log"), EderSantana/gumbel#4."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)
CURED = "--cured" in sys.argv


def gumbel_softmax(logits, tau):
    u = torch.rand(logits.shape)
    u = u.clamp(1e-3, 1 - 1e-3).half() if CURED else u.clamp(min=1e-4).half()
    noise = -torch.log(-torch.log(u))  # FAULT
    return F.softmax((logits + noise) / tau, dim=1)


class DVAE(nn.Module):
    def __init__(self, tokens=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, tokens, 1))
        self.codebook = nn.Embedding(tokens, 16)
        self.dec = nn.Sequential(nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x, tau):
        logits = self.enc(x)
        hard = gumbel_softmax(logits, tau)
        z = torch.einsum("bnhw,nd->bdhw", hard, self.codebook.weight)
        logp = F.log_softmax(logits, 1)
        kl = (logp.exp() * (logp + math.log(logits.shape[1]))).sum(1).mean()
        return self.dec(z), kl


model = DVAE()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
tau, losses = 1.0, []
for step in range(20):
    x = torch.rand(2, 1, 16, 16)
    out, kl = model(x, tau)
    loss = F.mse_loss(out, x) + 1e-3 * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    tau = max(0.5, tau * 0.98)
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
