# what: forwards that return generators, iterators, cyclic lists, custom mappings with counted access
# PRELUDE
from collections import UserDict, defaultdict
class Counted(dict):
    hits = 0
    def __getitem__(self, k): Counted.hits += 1; return super().__getitem__(k)
    def values(self): Counted.hits += 1; return super().values()
    def items(self): Counted.hits += 1; return super().items()
    def __iter__(self): Counted.hits += 1; return super().__iter__()
class Lazy(nn.Module):
    def __init__(self):
        super().__init__(); self.f = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)); self.made = []
    def forward(self, x):
        for i, f in enumerate(self.f):
            x = torch.tanh(f(x)); self.made.append(i); yield x
class Wrap(nn.Module):
    def __init__(self):
        super().__init__(); self.lazy = Lazy()
    def forward(self, x):
        g = self.lazy(x); first = next(g)
        loop = [first]; loop.append(loop)
        return Counted(first=first, rest=g, mapped=map(lambda t: t * 2, [first]), loop=loop, user=UserDict(a=first), d=defaultdict(list, a=[first]))
m = Wrap(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for s in range(4):
    x, _ = batch(s); opt.zero_grad(); Counted.hits = 0
    out = m(x); h = Counted.hits; made = list(m.lazy.made)
    loss = sum(t.pow(2).mean() for t in out["rest"]) + next(out["mapped"]).mean()
    loss.backward(); opt.step(); print(h, made, m.lazy.made, float(loss.detach()).hex(), next(out["rest"], "end"), next(out["mapped"], "end"))
    m.lazy.made.clear()
print(M(m), R())
