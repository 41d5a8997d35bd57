import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class VAE(nn.Module):
    def __init__(self):
        super().__init__(); self.enc, self.dec = nn.Linear(8, 8), nn.Linear(4, 8)
    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(-1).mean()
        return F.mse_loss(torch.sigmoid(self.dec(z)), x) + kl
net = VAE(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    x = torch.rand(8, 8)
    if step == 2: x[3] *= 400  # a row that was not divided by 255
    loss = net(x)
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
