"""model.__class__ is assigned while it trains (as FSDP2 and mixins do), back again, and for a submodule; _modules and _parameters are changed directly; layers deleted and set anew."""
# PRELUDE
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.c(self.b(self.a(x).tanh()).relu())


class Mixin:
    def forward(self, x):
        return super().forward(x) * self.k

    def __repr__(self):
        return "mixed"


torch.manual_seed(1)
m = Plain()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2))
old = m.__class__
m.__class__ = type("Mixed", (Mixin, Plain), {"k": 0.5})
print(train(m, opt, 2), m, type(m).__name__)
m.a.__class__ = type("L2", (nn.Linear,), {"forward": lambda self, x: F.linear(x, self.weight) * 2})
print(train(m, opt, 2))
m.__class__ = old
m._modules["b"] = nn.Identity()
print(train(m, opt, 2))
del m.b
m.b = nn.Linear(8, 8)
m._modules["a"] = m._modules.pop("a")
opt.add_param_group({"params": m.b.parameters()})
print(train(m, opt, 2), [n for n, _ in m.named_children()])
w = m.a._parameters.pop("weight")
m.a.weight = w.detach() * 0.9
print(train(m, opt, 2), M(m))
