"""Modules that return their own parameter, a view of it, the input itself, the same tensor twice, a view that the script changes in place under no_grad, an output that is a leaf with requires_grad set later."""
# PRELUDE
class Get(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8) * 0.2)

    def forward(self, how="w"):
        return {"w": self.w, "view": self.w[:2], "t": self.w.t(), "two": (self.w, self.w), "flat": self.w.view(-1)}[how]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.i, self.o = Get(), nn.Identity(), nn.Linear(8, 4)

    def forward(self, x):
        a, b = self.g("two")
        assert a is b and a is self.g.w
        same = self.i(x)
        assert same is x
        y = same @ self.g("t") + x @ a
        return self.o(y)


torch.manual_seed(1)
m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3))
with torch.no_grad():
    v = m.g("view")
    v.mul_(0.5)
    m.g("flat")[:3] = 1.0
    m.g().clamp_(-1, 1)
print(H(m.g.w), m.g.w._version, m.g() is m.g.w, m.g().is_leaf, m.g("view")._base is m.g.w)
z = nn.Identity()(torch.ones(2))
z.requires_grad_()
z.sum().backward()
print(z.grad, train(m, opt, 2), M(m), [p.grad_fn for p in m.parameters()])
