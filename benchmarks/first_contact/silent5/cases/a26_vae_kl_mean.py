import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# podgorskiy/VAE 1, keras-molecules 59: the KL term is averaged over the latent dimensions while the reconstruction is summed
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.lv = nn.Linear(32, 48), nn.Linear(48, 12), nn.Linear(48, 12)
        self.dec = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 32))

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, lv = self.mu(h), self.lv(h)
        return self.dec(mu + torch.randn_like(mu) * (0.5 * lv).exp()), mu, lv


net = VAE()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
W = torch.randn(4, 32)
for step in range(150):
    x = torch.sigmoid(torch.randn(64, 4) @ W)
    r, mu, lv = net(x)
    rec = F.binary_cross_entropy_with_logits(r, x, reduction="none").sum(1).mean()
    k = 1 + lv - mu.pow(2) - lv.exp()
    kld = -0.5 * (k.sum(1).mean() if HEALTHY else k.mean(1).mean())
    loss = rec + kld
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item(), kld.item())
report(net)
