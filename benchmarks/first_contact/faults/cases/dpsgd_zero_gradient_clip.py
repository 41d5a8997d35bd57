"""Per-sample gradients by vmap(grad), clipped by C / norm: a sample whose gradient is zero gives inf, and inf * 0.
Source: PaddlePaddle/Paddle#32038 (clipping by a zero norm), kozistr/pytorch_optimizer#431."""
import sys
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

CURED = "--cured" in sys.argv
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)


def loss_of(params, x, y):
    return torch.relu((functional_call(net, params, (x,)) - y).abs() - 0.1).sum()  # epsilon-insensitive


for step in range(4):
    x = torch.randn(6, 5)
    y = torch.randn(6, 1)
    if step == 2:
        y[1] = net(x)[1].detach()  # fits already
    params = {k: v.detach() for k, v in net.named_parameters()}
    per = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
    norm = torch.stack([g.flatten(1).norm(dim=1) for g in per.values()]).norm(dim=0)
    factor = 1.0 / (norm + (1e-6 if CURED else 0.0))  # FAULT
    factor = torch.where(factor < 10, factor, factor.clamp(max=10.0)) if CURED else factor
    for k, p in net.named_parameters():
        g = per[k] * factor.view(-1, *[1] * p.dim())
        p.grad = g.mean(0) + 0.01 * torch.randn_like(p)
    opt.step()
    loss = (net(x) - y).pow(2).mean()
    print(step, loss.item())
