"""Modules as attrs classes (pre-init, eq=False), a dataclass container of modules, a pydantic model that holds one, modules with __iter__, __contains__ and generic base classes, singledispatch forward, enum-keyed ModuleDict."""
# PRELUDE
import attrs, enum, functools, typing, dataclasses, pydantic
@attrs.define(eq=False, slots=False)
class Blk(nn.Module):
    h: int = 8
    act: typing.Callable = torch.tanh
    lin: nn.Linear = attrs.field(init=False)
    def __attrs_pre_init__(self): super().__init__()
    def __attrs_post_init__(self): self.lin = nn.Linear(self.h, self.h)
    def forward(self, x): return self.act(self.lin(x))
T_ = typing.TypeVar("T_", bound=nn.Module)
class Wrap(nn.Module, typing.Generic[T_]):
    def __init__(self, inner: T_):
        super().__init__()
        self.inner = inner
    def __iter__(self): return iter([self.inner])
    def __contains__(self, x): return x is self.inner
    def __len__(self): return 0
    def forward(self, x): return x + self.inner(x)
class K(str, enum.Enum):
    A = "a"
    B = "b"
@dataclasses.dataclass
class Out:
    y: torch.Tensor
    aux: typing.Optional[torch.Tensor] = None
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleDict({K.A: Wrap[Blk](Blk()), K.B: Wrap(Blk(act=torch.relu))})
        self.o = nn.Linear(8, 4)
        self.enc = functools.singledispatch(lambda v: v)
        self.enc.register(list)(lambda v: torch.stack(v))
    def forward(self, x) -> Out:
        x = self.enc(x)
        for k in K:
            x = self.d[k](x)
        return Out(self.o(x), x.mean())
class Cfg(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    model: nn.Module
    lr: float = 0.05
c = Cfg(model=Net())
W(c.model)
opt = torch.optim.SGD(c.model.parameters(), c.lr)
for s in range(5):
    x, y = batch(s)
    o = c.model(list(x) if s % 2 else x)
    loss = F.mse_loss(o.y, y) + 0.1 * o.aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex())
c2 = c.model_copy(deep=True)
print(M(c2.model) == M(c.model), list(c.model.d), c.model_dump(exclude={"model"}), attrs.asdict(Blk(), recurse=False).keys(), M(c.model), R())
