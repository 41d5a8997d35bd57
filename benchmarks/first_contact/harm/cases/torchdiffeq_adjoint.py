"""A neural ODE by odeint_adjoint with adaptive steps: number of function evaluations printed, gradients by an inner autograd.grad.

source: rtqichen/torchdiffeq examples; spikingjelly PR 730 (counting calls)
meta: {"limit": 90}
"""
import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint
from fcw import grads, mlp, rng, say, seed, sha, watch, weights

seed(311)


class F(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.nfe = mlp(2, 8, 2), 0

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3) * 0.3


f = F()
watch(f)
opt = torch.optim.RMSprop(f.parameters(), 1e-3)
for step in range(4):
    y0 = torch.randn(3, 2)
    way = odeint_adjoint if step % 2 else odeint
    out = way(f, y0, torch.linspace(0, 1, 4), method="dopri5", rtol=1e-4, atol=1e-5)
    loss = (out[-1] - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), f.nfe, sha(grads(f)))
say(sha(weights(f)), rng())
