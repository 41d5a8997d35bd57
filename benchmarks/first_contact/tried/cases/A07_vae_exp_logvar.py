# source: vanderschaarlab/synthcity#331 (exp of unbounded logvar)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 8), nn.Linear(4, 8)
    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1).mean()
        return F.mse_loss(self.dec(z), x) + 1e-3 * kl
model = VAE()  # MODEL
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(16, 8)
    if step == 2:
        x[9] = 1e3 * model.enc.weight[5].detach().sign()
    # BATCH 0: x
    loss = model(x)
    opt.zero_grad(); loss.backward(); opt.step()
