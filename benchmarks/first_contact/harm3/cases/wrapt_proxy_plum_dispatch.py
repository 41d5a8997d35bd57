"""A wrapt.ObjectProxy around the model and around its optimizer, functions dispatched by plum on tensor types, functools.singledispatchmethod as forward, frozendict configurations; counts and results."""
# PRELUDE
import functools

import plum
import wrapt
from frozendict import frozendict

count = []


class Px(wrapt.ObjectProxy):
    def __call__(self, *a, **k):
        count.append("call")
        return self.__wrapped__(*a, **k)


@wrapt.decorator
def deco(f, inst, a, k):
    count.append(type(inst).__name__)
    return f(*a, **k)


@plum.dispatch
def scale(x: torch.Tensor):
    return x * 0.5


@plum.dispatch
def scale(x: int):
    return x


class Net(nn.Module):
    cfg = frozendict(h=16)

    def __init__(self):
        super().__init__()
        self.body = net(1, h=self.cfg["h"])

    @functools.singledispatchmethod
    def kind(self, x):
        raise TypeError(type(x))

    @kind.register
    def _(self, x: torch.Tensor):
        return self.body(x)

    @kind.register
    def _(self, x: list):
        return self.body(torch.stack(x))

    @deco
    def forward(self, x):
        return scale(self.kind(x)) + scale(1)


m = Net()
W(m)
p, opt = Px(m), wrapt.ObjectProxy(torch.optim.SGD(m.parameters(), 0.05))
print(train(p, opt, 3), isinstance(p, nn.Module), type(p).__name__)
x, t = batch(7)
opt.zero_grad()
F.mse_loss(p(list(x)), t).backward()
opt.step()
print(count, M(m), H(p.state_dict()))
