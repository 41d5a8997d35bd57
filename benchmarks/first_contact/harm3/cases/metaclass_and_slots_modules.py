"""Modules with a metaclass whose __call__ counts and caches instances, __slots__, __init_subclass__, ABCMeta, Generic, Protocol, __class_getitem__, __set_name__: counts and results."""
# PRELUDE
import abc
import typing

made = []


class Meta(abc.ABCMeta):
    cache = {}

    def __call__(cls, *a, **k):
        made.append(cls.__name__)
        key = (cls, a)
        if key not in Meta.cache:
            Meta.cache[key] = super().__call__(*a, **k)
        return Meta.cache[key]

    def __instancecheck__(cls, x):
        made.append("isinstance " + cls.__name__)
        return super().__instancecheck__(x)

    def __getattribute__(cls, n):
        return super().__getattribute__(n)


T = typing.TypeVar("T")


class Base(nn.Module, typing.Generic[T], metaclass=Meta):
    __slots__ = ("slot",)
    registry = []

    def __init_subclass__(cls, **k):
        super().__init_subclass__(**k)
        Base.registry.append(cls.__name__)

    @abc.abstractmethod
    def forward(self, x): ...


class Lin(Base[int]):
    def __init__(self, i, o):
        super().__init__()
        self.slot = o
        self.l = nn.Linear(i, o)

    def forward(self, x):
        return self.l(x).tanh() * (self.slot / 8)


class Desc:
    def __set_name__(self, owner, n):
        made.append("name " + n)

    def __get__(self, obj, owner):
        return self if obj is None else obj.a


class Net(Base[str]):
    d = Desc()

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = Lin(8, 8), Lin(8, 8), Lin(8, 4)

    def forward(self, x):
        assert self.d is self.a is self.b
        return self.c(self.b(self.d(x)))


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1)
print(train(m, opt, 4), isinstance(m, Base), made, Base.registry, M(m))
