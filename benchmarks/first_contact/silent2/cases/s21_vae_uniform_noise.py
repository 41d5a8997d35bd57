"""VAE: the reparameterization draws torch.rand_like (uniform, mean 0.5) in place of randn_like.
Source: https://github.com/toshikwa/slac.pytorch/issues/5 (also graviraja/pytorch-sample-codes issue 3)
Truth: mean of (z - mu) / std.
Could a tool know: no. Uniform noise is legal.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16))
        self.dec = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(8, 1, 4, 2, 1))
    def forward(self, x):
        mu, lv = self.enc(x).chunk(2, 1); std = (0.5 * lv).exp()
        self.eps = torch.randn_like(std) if HEALTHY else torch.rand_like(std)
        return self.dec(mu + self.eps * std), mu, lv
net = VAE(); opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(150):
    c = torch.randint(0, 5, (32, 2)); x = torch.zeros(32, 1, 8, 8)
    for i in range(32): x[i, 0, c[i, 0]:c[i, 0] + 4, c[i, 1]:c[i, 1] + 4] = 1
    y, mu, lv = net(x); kl = -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
    loss = F.binary_cross_entropy_with_logits(y, x, reduction="sum") / 32 + kl
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH mean of the noise {net.eps.mean():.3f} loss {loss:.2f}")
