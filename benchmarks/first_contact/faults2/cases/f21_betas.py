"""lucidrains/imagen-pytorch#161: betas above 1 with few timesteps, sqrt of a negative cumulative product, registered as a buffer
TRUTH op=aten.sqrt reason=argument outside the function's domain|bad parameter"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Diffusion(nn.Module):
    def __init__(self, T):
        super().__init__()
        s = 1000 / T
        betas = torch.linspace(1e-4 * s, 0.02 * s, T)
        if CURED: betas = betas.clamp(max=0.999)
        acp = torch.cumprod(1 - betas, 0)
        self.register_buffer("sqrt_acp", torch.sqrt(acp))  # FAULT
        self.register_buffer("sqrt_om", (1 - acp).clamp(min=0).sqrt())
        self.net = nn.Sequential(nn.Linear(17, 64), nn.SiLU(), nn.Linear(64, 16))
    def forward(self, x, t, n):
        xt = self.sqrt_acp[t][:, None] * x + self.sqrt_om[t][:, None] * n
        return F.mse_loss(self.net(torch.cat([xt, t[:, None].float() / 10], 1)), n)
net = Diffusion(10); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    x = torch.randn(8, 16); loss = net(x, torch.randint(0, 10, (8,)), torch.randn_like(x)); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
