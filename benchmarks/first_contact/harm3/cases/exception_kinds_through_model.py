"""Odd exceptions through forwards, backward and hooks: StopIteration, GeneratorExit, a BaseException subclass, an ExceptionGroup handled by except*, one whose __init__ needs arguments, one with __slots__ and a metaclass, asyncio.CancelledError, a string with surrogates: type, args and identity of the object."""
# PRELUDE
import asyncio


class Own(BaseException):
    pass


class Meta(type):
    def __subclasscheck__(cls, s):
        return super().__subclasscheck__(s)


class Slots(Exception, metaclass=Meta):
    __slots__ = ("k",)

    def __init__(self, a, b):
        self.k = (a, b)


class Boom(nn.Module):
    exc = None

    def forward(self, x):
        if self.exc is not None:
            raise self.exc
        return x


m = nn.Sequential(nn.Linear(8, 8), Boom(), nn.Linear(8, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
for e in (StopIteration(3), GeneratorExit(), Own("own"), Slots(1, 2), asyncio.CancelledError("c"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), Exception("\udc80"), MemoryError(), AssertionError(), OSError(28, "No space", "f"), RecursionError("r"), KeyError("\n")):
    m[1].exc = e
    try:
        m(batch(0)[0])
    except BaseException as got:
        print(type(got).__name__, got is e, [repr(a) for a in got.args], getattr(got, "__notes__", None), got.__cause__, got.__context__)
m[1].exc = ExceptionGroup("g", [ValueError(1), TypeError("t")])
try:
    m(batch(0)[0])
except* ValueError as g:
    print("values", [repr(e) for e in g.exceptions])
except* TypeError as g:
    print("types", [repr(e) for e in g.exceptions])
m[1].exc = None
for e in (ValueError("in hook"), Own("in hook")):
    x, t = batch(0)
    y = m(x)

    def h(g, e=e):
        raise e

    y.register_hook(h)
    try:
        y.sum().backward()
    except BaseException as got:
        print(type(got).__name__, got.args)
opt.zero_grad()
print(train(m, opt, 3), M(m))
