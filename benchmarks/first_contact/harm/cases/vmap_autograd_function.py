"""A custom autograd.Function with setup_context and generate_vmap_rule, under vmap, grad and plain backward, jvp too.

source: pytorch/pytorch#144639
"""
import torch
from torch import nn
from fcw import rng, say, seed, sha, watch, weights

seed(6)


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return (x * w) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * 3 * (x * w) ** 2 * w, (g * 3 * (x * w) ** 2 * x).sum_to_size(w.shape)

    @staticmethod
    def jvp(ctx, tx, tw):
        x, w = ctx.saved_tensors
        return 3 * (x * w) ** 2 * (tx * w + (x * tw if tw is not None else 0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.w = nn.Linear(4, 4), nn.Parameter(torch.full((4,), 0.7))

    def forward(self, x):
        return Cube.apply(self.l(x), self.w)


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.02)
for step in range(3):
    x = torch.randn(3, 4)
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    per = torch.func.vmap(torch.func.grad(lambda a: Cube.apply(a, net.w.detach()).sum()))(x)
    out, tan = torch.func.jvp(lambda a: Cube.apply(a, net.w.detach()), (x,), (torch.ones_like(x),))
    say(loss.item().hex(), sha(per), sha(out, tan), [sha(p.grad) for p in net.parameters()])
say(sha(weights(net)), rng())
