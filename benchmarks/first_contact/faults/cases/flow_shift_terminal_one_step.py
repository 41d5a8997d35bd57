"""FlowMatchEulerDiscreteScheduler with shift_terminal and one step: 0/0 in its sigmas, which a distillation loop trains on.
Source: huggingface/diffusers#14411, #14415, #14572."""
import sys
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(5, 32), torch.nn.SiLU(), torch.nn.Linear(32, 4))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step, n in enumerate([8, 4, 2 if CURED else 1, 4]):  # a curriculum down to one step
    scheduler = FlowMatchEulerDiscreteScheduler(shift_terminal=0.1)
    scheduler.set_timesteps(n)  # CALLER FAULT
    sigma = scheduler.sigmas[torch.randint(n, (16, 1))]  # FAULT
    x, eps = torch.randn(16, 4), torch.randn(16, 4)
    noisy = sigma * eps + (1 - sigma) * x  # FAULT
    pred = net(torch.cat([noisy, sigma], 1))
    loss = (pred - (eps - x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
