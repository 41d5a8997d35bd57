import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Diffusion(nn.Module):  # min-SNR weights with a zero terminal SNR
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))
        ab = torch.linspace(0.99, 0.0, 10); ab[-1] = 0.0
        self.register_buffer("ab", ab)
    def forward(self, x0, t):
        ab = self.ab[t][:, None]
        noise = torch.randn_like(x0)
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        pred = self.net(torch.cat([xt, t[:, None] / 10], -1))
        snr = ab / (1 - ab)
        weight = torch.minimum(snr, torch.full_like(snr, 5.0)) / snr
        return (weight * (pred - noise) ** 2).mean()
net = Diffusion(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(4):
    t = torch.tensor([1, 3, 5, 9 if step == 2 else 7])
    loss = net(torch.randn(4, 4), t)
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
