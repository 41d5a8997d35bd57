"""DDPO: log-probability of a denoising step under a Gaussian whose std is 0 at the last step.
Source: irom-princeton/dppo#48, huggingface/diffusers#3006 (variance clamped before its log)."""
import sys
import math
import torch
from torch import nn
from diffusers import DDIMScheduler

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 32), nn.GELU(), nn.Linear(32, 2))
ddim = DDIMScheduler(num_train_timesteps=100, steps_offset=0, set_alpha_to_one=True)
ddim.set_timesteps(4)
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)


def log_prob(sample, mean, t):
    prev = t - 25
    var = ddim._get_variance(t, prev) if prev >= 0 else torch.zeros(())
    std = var.sqrt()
    if CURED:
        std = std.clamp(min=1e-3)
    return (-((sample - mean) ** 2) / (2 * std**2) - torch.log(std) - 0.5 * math.log(2 * math.pi)).mean(1)  # FAULT


for step in range(3):
    x = torch.randn(8, 2)
    for t in ddim.timesteps.tolist():
        tt = torch.full((8, 1), t / 100)
        mean = net(torch.cat([x, tt], 1))
        nxt = (mean + 0.1 * torch.randn_like(mean)).detach()
        reward = -nxt.norm(dim=1)
        logp = log_prob(nxt, mean, t)
        ratio = torch.exp(logp - logp.detach())
        loss = -(ratio * (reward - reward.mean())).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        x = nxt
    print(step, loss.item())
