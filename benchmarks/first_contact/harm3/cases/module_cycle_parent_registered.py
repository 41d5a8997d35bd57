"""Modules that hold their parent as a registered submodule (a cycle): named_modules ends by its memo, train() would not; forward, state dict by hand, deepcopy."""
# PRELUDE
class Child(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.parent = parent

    def forward(self, x):
        return self.l(x) * self.parent.scale


class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.kid = Child(self)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.kid(x).tanh())


torch.manual_seed(1)
m = Parent()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, opt, 5), [n for n, _ in m.named_modules()], [n for n, _ in m.named_parameters()])
import copy

c = copy.deepcopy(m)
print(c.kid.parent is c, H(list(c.parameters())), H([p.grad for p in m.parameters()]))
for f in (m.train, m.state_dict, lambda: repr(m)):
    try:
        f()
        print("fine")
    except RecursionError as e:
        print("RecursionError")
print(train(m, opt, 2), H(list(m.parameters())))
