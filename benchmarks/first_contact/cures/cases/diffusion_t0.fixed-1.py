import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/andreas128/SRFlow/issues/2 (a scale used as divisor goes to 0)
class Denoiser(nn.Module):
    def __init__(self):
        super().__init__(); self.c1 = nn.Conv2d(1, 8, 3, padding=1); self.t = nn.Linear(1, 8); self.c2 = nn.Conv2d(8, 1, 3, padding=1)
        self.register_buffer("ab", torch.linspace(1, 0.01, 20))
    def forward(self, x0, t, noise):
        ab = self.ab[t][:, None, None, None]
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        h = F.silu(self.c1(xt) + self.t(t[:, None].float() / 20)[:, :, None, None])
        pred_x0 = self.c2(h)
        eps = (xt - ab.sqrt() * pred_x0) / torch.where((1 - ab).sqrt().abs() < 1e-6, 1e-6, (1 - ab).sqrt())
        return F.mse_loss(eps, noise)
model = Denoiser(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(10):
    x = torch.randn(4, 1, 8, 8); t = torch.randint(1, 20, (4,))
    if step == 5: t[0] = 0
    loss = model(x, t, torch.randn_like(x)); opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
