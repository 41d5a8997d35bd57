"""The EMA's step writes the step's decay back to self.decay: it oscillates around 0.5, and the average is a copy of the last weights.
Source: https://github.com/huggingface/diffusers/issues/1864
Truth: the decay in use at the end is 0.5 (healthy: 0.9).
Could a tool know: no: an average's horizon is a choice (partly: the copy follows the weights within two steps).
"""
import copy
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class EMAModel:
    def __init__(self, model, decay=0.9999):
        self.shadow, self.decay, self.n = copy.deepcopy(model).requires_grad_(False).eval(), decay, 0

    @torch.no_grad()
    def step(self, model):
        self.n += 1
        value = (1 + self.n) / (10 + self.n)
        one_minus = 1 - min(self.decay, value)
        if not HEALTHY:
            self.decay = one_minus
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.sub_(one_minus * (s - p))
        return 1 - one_minus


unet = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 1, 3, padding=1))
ema = EMAModel(unet)
opt = torch.optim.AdamW(unet.parameters(), lr=2e-3)
for step in range(150):
    x = torch.ones(8, 1, 8, 8) * torch.randn(8, 1, 1, 1)
    eps, t = torch.randn_like(x), torch.rand(8, 1, 1, 1)
    loss = nn.functional.mse_loss(unet((1 - t) * x + t * eps), eps - x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    decay = ema.step(unet)
print(f"loss {loss.item():.4f} decay in use {decay:.3f}")
