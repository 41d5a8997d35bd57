"""Reentrant checkpointing (use_reentrant=True): a variance of exactly zero under rsqrt, without eps.
Source: Own: a LayerNorm without eps under reentrant checkpointing."""
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Norm(nn.Module):
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        var = x.pow(2).mean(-1, keepdim=True)
        if CURED:
            var = var + 1e-5
        return x * torch.rsqrt(var)  # FAULT


net = nn.Sequential(nn.Linear(6, 6, bias=False), Norm(), nn.ReLU(), nn.Linear(6, 6), Norm(), nn.Linear(6, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(4, 6, requires_grad=True)
    if step == 2:
        x = torch.cat([x[:3], torch.zeros(1, 6)]).detach().requires_grad_(True)
    out = checkpoint_sequential(net, 2, x, use_reentrant=True)
    loss = nn.functional.cross_entropy(out, torch.randint(3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
