"""From keras-team/keras issue 3283 (also alecGraves/BVAE-tf issue 7).
Wrong: z = mean + exp(logvar) * eps, while the KL term takes logvar as a log-variance.  Could know: no.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class VAE(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8)); self.d = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 16))
    def forward(self, x):
        mu, lv = self.e(x).chunk(2, 1); z = mu + torch.exp(0.5 * lv if H else lv) * torch.randn_like(mu); return self.d(z), mu, lv
A = torch.randn(4, 16); m = VAE(); opt = torch.optim.Adam(m.parameters(), lr=3e-3)
for step in range(200):
    x = torch.randn(128, 4) @ A + .3 * torch.randn(128, 16); r, mu, lv = m(x)
    kl = -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean(); rec = ((r - x) ** 2).sum(1).mean() / .18; loss = rec + kl
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 3))
print("check: std that is sampled / std in the KL", 1.0 if H else torch.exp(0.5 * lv).mean().item())
