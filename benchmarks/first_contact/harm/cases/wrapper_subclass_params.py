"""Parameters that are wrapper subclasses with __torch_dispatch__ (a two-part tensor), trained by a plain optimizer.

source: pytorch/pytorch PR 73459, pytorch/pytorch#65530
"""
import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from fcw import rng, say, seed, sha, watch

seed(9)


class Pair(torch.Tensor):
    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, strides=a.stride(), requires_grad=False)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return "Pair"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(parts, ctx, size, stride):
        return Pair(parts["a"], parts["b"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ra = func(*tree_map_only(Pair, lambda p: p.a, args), **tree_map_only(Pair, lambda p: p.a, kwargs))
        rb = func(*tree_map_only(Pair, lambda p: p.b, args), **tree_map_only(Pair, lambda p: p.b, kwargs))
        if func._schema.is_mutable:
            return args[0]
        return Pair(ra, rb) if isinstance(ra, torch.Tensor) else ra


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(Pair(torch.randn(4, 4), torch.randn(4, 4)))
        self.plain = nn.Linear(4, 4)

    def forward(self, x):
        return (self.plain(x) @ self.w).tanh()


net = Net()
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1, foreach=False)
for step in range(4):
    out = net(torch.randn(3, 4))
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(type(loss).__name__, loss.a.item().hex(), loss.b.item().hex(), type(net.w.grad).__name__, sha(net.w.grad.a, net.w.grad.b))
say(sha(net.w.a, net.w.b), type(net.w).__name__, rng())
