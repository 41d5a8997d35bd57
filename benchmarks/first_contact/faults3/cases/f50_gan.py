"""GAN with the logarithms written out; the discriminator becomes certain.
Source: hwalsuklee/tensorflow-mnist-VAE#4 ("tf.log got 0"), I. Goodfellow et al., arXiv 1406.2661 (log(1 - D))."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(50)
EPS = 1e-6 if "--cured" in sys.argv else 0.0

G = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1), nn.Sigmoid())
g_opt, d_opt = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-2)
log = []


def train_discriminator(real, fake):
    d_opt.zero_grad()
    loss = -torch.log(D(real) + EPS).mean() - torch.log(1 - D(fake.detach()) + EPS).mean()
    loss.backward()
    d_opt.step()
    return loss.item()


def train_generator(fake):
    g_opt.zero_grad()
    loss = -torch.log(D(fake) + EPS).mean()  # FAULT
    loss.backward()
    g_opt.step()
    return loss.item()


for step in range(40):
    angle = torch.rand(64, 1) * 2 * math.pi
    real = torch.cat([angle.cos(), angle.sin()], 1) * 12 + 20
    fake = G(torch.randn(64, 16))
    if step >= 25:
        fake = fake - 60.0  # the generator's data come in another unit from here on
    for _ in range(2):
        d = train_discriminator(real, fake)
    log.append((d, train_generator(fake)))
    print(step, log[-1])
print("FINITE", all(math.isfinite(a) and math.isfinite(b) for a, b in log) and all(bool(p.isfinite().all()) for m in (G, D) for p in m.parameters()))
