"""Batches that compute on access (a Mapping with counted __getitem__, a dataclass with counted properties, a NamedTuple with a checking __new__, a sequence that loads its items, an iterator argument, an object with __torch_function__ and lazy proxies) passed to a watched model: how often each is touched, and in which order."""
import collections, dataclasses
# PRELUDE
log = []


class LazyDict(collections.abc.Mapping):
    def __init__(self, s):
        self.s = s

    def __getitem__(self, k):
        log.append(f"get {k}")
        return {"x": batch(self.s)[0], "y": batch(self.s)[1]}[k]

    def __iter__(self):
        log.append("iter")
        return iter(("x", "y"))

    def __len__(self):
        log.append("len")
        return 2


class LazyUser(collections.UserDict):
    def __getitem__(self, k):
        log.append(f"user {k}")
        return super().__getitem__(k)


@dataclasses.dataclass
class Bag:
    s: int

    @property
    def x(self):
        log.append("property x")
        return batch(self.s)[0]


class Checked(collections.namedtuple("Checked", "x scale")):
    def __new__(cls, x, scale):
        log.append("new checked")
        if not isinstance(x, torch.Tensor):
            raise TypeError("x must be a tensor")
        return super().__new__(cls, x, float(scale))


class LazyList(collections.abc.Sequence):
    def __getitem__(self, i):
        log.append(f"item {i}")
        if i > 1:
            raise IndexError(i)
        return torch.full((6, 8), 0.01 * i)

    def __len__(self):
        log.append("length")
        return 2


class Proxy:
    def __init__(self, s):
        self.__dict__["s"] = s

    def __getattr__(self, name):
        log.append(f"proxy {name}")
        return getattr(batch(self.__dict__["s"])[0], name)


class SubDict(dict):
    def items(self):
        log.append("items")
        return super().items()

    def __reduce_ex__(self, k):
        log.append("reduced")
        return super().__reduce_ex__(k)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.inner = net(), nn.Identity()

    def forward(self, d, bag, checked, seq, it, proxy, sub, **more):
        x = d["x"] + bag.x + checked.x * checked.scale + seq[1] + next(it) + proxy.mul(2) + sub["a"] + more["user"]["b"]
        self.inner(checked), self.inner(sub), self.inner(seq), self.inner(d)
        return SubDict(out=Checked(self.body(x), 2))


m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.01)
for s in range(5):
    log.clear()
    opt.zero_grad()
    it = iter([torch.ones(8), torch.zeros(8)])
    out = m(LazyDict(s), Bag(s), Checked(batch(s)[0], 3), LazyList(), it, Proxy(s), SubDict(a=torch.ones(8)), user=LazyUser(b=torch.ones(1)))
    made = list(log)
    loss = F.mse_loss(out["out"].x, batch(s)[1])
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), len(list(it)), type(out).__name__, type(out["out"]).__name__, H(made), made if s in (0, 4) else len(made), log[len(made):], M(m))
