"""forward as a staticmethod, a classmethod, a property, a functools.partialmethod, a builtin, an async function, a generator function, a slot of another class; call through functools.singledispatch and lru_cache."""
# PRELUDE
import asyncio
import functools


class S(nn.Module):
    @staticmethod
    def forward(x):
        return x * 2


class C(nn.Module):
    k = 3

    @classmethod
    def forward(cls, x):
        return x * cls.k


class Pr(nn.Module):
    @property
    def forward(self):
        return torch.tanh


class Pm(nn.Module):
    def _f(self, k, x):
        return x * k

    forward = functools.partialmethod(_f, 0.5)


class Bi(nn.Module):
    forward = torch.relu


class Bs(nn.Module):
    forward = staticmethod(torch.relu)


class As(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    async def forward(self, x):
        await asyncio.sleep(0)
        return self.l(x)


class Ge(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        got = yield self.l(x)
        yield self.l(x * got)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.s, self.c, self.pr, self.pm, self.bs, self.a, self.g, self.o = S(), C(), Pr(), Pm(), Bs(), As(), Ge(), nn.Linear(8, 4)

    def forward(self, x):
        x = self.bs(self.pm(self.pr(self.c(self.s(x))))) + 0.1
        x = asyncio.run(self.a(x))
        it = self.g(x)
        y = next(it)
        y = y + it.send(2.0)
        try:
            next(it)
        except StopIteration:
            pass
        return self.o(y)


torch.manual_seed(1)
m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 4), M(m))
try:
    Bi()(torch.ones(2))
except TypeError as e:
    print(type(e).__name__)
print(nn.Linear.forward.__name__, H(nn.Linear.forward(m.o, torch.ones(1, 8))))
