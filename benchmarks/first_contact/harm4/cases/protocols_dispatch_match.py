"""functools.singledispatch on layers, runtime protocols, match on module classes with __match_args__, Generic modules, dir, vars, signature, docs and repr of a watched model."""
# PRELUDE
import inspect, functools, pydoc
from typing import Generic, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Scores(Protocol):
    def score(self, x): ...


class Head(nn.Linear, Generic[T]):
    """A head."""
    __match_args__ = ("in_features", "out_features")

    def score(self, x: torch.Tensor, *, top: int = 2) -> torch.Tensor:
        """Largest values."""
        return self(x).topk(top).values

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return super().forward(x) * scale


@functools.singledispatch
def describe(layer):
    return "other"


@describe.register
def _(layer: nn.Linear):
    return f"linear {layer.in_features}"


@describe.register
def _(layer: nn.Sequential):
    return [describe(k) for k in layer]


m = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), Head[int](8, 4))
before = [sorted(vars(k)) for k in m.modules()], [dir(k) for k in m.modules()], repr(m), inspect.signature(m[2].forward), inspect.signature(type(m[2]).forward)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    print(train(m, opt, 1, s))
    after = [sorted(vars(k)) for k in m.modules()], [dir(k) for k in m.modules()], repr(m), inspect.signature(m[2].forward), inspect.signature(type(m[2]).forward)
    print([x == y for x, y in zip(before, after)], inspect.getdoc(m[2].score), inspect.signature(m[2].score), inspect.ismethod(m.forward), m[2].forward.__func__ is Head.forward)
    match m[2]:
        case Head(8, out):
            print("head", out)
        case _:
            print("no")
    print(describe(m), isinstance(m[2], Scores), H(m[2].score(torch.ones(1, 8))))
print([len(k.__dict__) for k in m.modules()], H(pydoc.plain(pydoc.render_doc(type(m[2])))), [isinstance(m._forward_hooks, dict), m.__class__.__mro__ == nn.Sequential.__mro__, list(m.__dict__)])
print(inspect.getmembers(m[1], lambda v: isinstance(v, bool)), [n for n, _ in m.named_modules()], M(m), R())
