"""Modules with __len__ of 0, __bool__ that raises, __getattr__ that forwards to what they wrap, __eq__ by value, __iter__, __slots__ and a __call__ of their own."""
# PRELUDE
seed(93)
looks = []


class Registry(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __len__(self):
        return 0

    def __getattr__(self, k):
        try:
            return super().__getattr__(k)
        except AttributeError:
            looks.append(k)
            return getattr(super().__getattr__("inner"), k)

    def __iter__(self):
        raise RuntimeError("not to be iterated")

    def forward(self, x):
        return self.inner(x)


class NoBool(nn.Linear):
    def __bool__(self):
        raise RuntimeError("truth of a layer")

    def __eq__(self, o):
        return isinstance(o, NoBool) and torch.equal(self.weight, o.weight)

    def __hash__(self):
        return 7

    def __contains__(self, k):
        raise RuntimeError("contains")


class Called(nn.Module):
    __slots__ = ("n",)

    def __init__(self):
        super().__init__()
        self.l = NoBool(8, 8)
        self.l2 = NoBool(8, 8)
        self.l2.load_state_dict(self.l.state_dict())
        object.__setattr__(self, "n", 0)

    def __call__(self, x, *a, **k):
        object.__setattr__(self, "n", self.n + 1)
        return super().__call__(x, *a, **k)

    def forward(self, x):
        return self.l2(self.l(x).relu())

    @property
    def costly(self):
        looks.append("costly")
        return torch.randn(3)

    def extra_repr(self):
        looks.append("repr")
        return "x"

    def __dir__(self):
        looks.append("dir")
        return super().__dir__()


class Meta(type):
    def __call__(cls, *a, **k):
        looks.append("meta")
        o = super().__call__(*a, **k)
        o.made = True
        return o


class Head(nn.Module, metaclass=Meta):
    def __init__(self):
        super().__init__()
        self.w = nn.ParameterDict({"a": nn.Parameter(torch.randn(8, 2)), "b": nn.Parameter(torch.zeros(2))})

    def forward(self, x):
        return x @ self.w["a"] + self.w["b"]

    def named_parameters(self, *a, **k):
        looks.append("named_parameters")
        return super().named_parameters(*a, **k)


net = Registry(nn.Sequential(nn.Linear(5, 8), Called(), Head()))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(12):
    loss = F.cross_entropy(net(torch.randn(8, 5)), torch.randint(0, 2, (8,)))
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = net(torch.full((2, 5), math.nan)) if step == 6 else net(torch.zeros(2, 5))
    print(step, dig(loss, e), net.inner[1].n)
print([k for k in looks if k not in ("named_parameters",)].count("costly"), looks.count("repr"), looks.count("meta"))
end(net, opt)
