"""Modules that return generators, iterators, lazy dicts that count reads, dataclasses, namedtuples, custom objects, None; arguments that are iterators.

Source: invented, after transformers' ModelOutput
"""
# PRELUDE
import collections
from dataclasses import dataclass
log = []
class Lazy(dict):
    def __getitem__(self, k): log.append("get"); return dict.__getitem__(self, k)
    def items(self): log.append("items"); return dict.items(self)
    def values(self): log.append("values"); return dict.values(self)
    def __iter__(self): log.append("iter"); return dict.__iter__(self)
class Seq(collections.abc.Sequence):
    def __init__(self, v): self.v = v
    def __len__(self): log.append("slen"); return len(self.v)
    def __getitem__(self, i): log.append("sget"); return self.v[i]
@dataclass
class Out:
    y: torch.Tensor
    extra: object = None
P = collections.namedtuple("P", "a b")
class Net(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4); self.kind = 0
    def forward(self, it, **kw):
        y = self.l(next(it)); k = self.kind
        if k == 0: return (log.append("made") or y * i for i in (1, 2))
        if k == 1: return iter([y, y * 2])
        if k == 2: return Lazy(y=y, n=None)
        if k == 3: return Seq([y])
        if k == 4: return Out(y, {1: y.sum()})
        if k == 5: return P(y, [y.sum(), "text", {"deep": (y,)}])
        if k == 6: return map(lambda t: log.append("map") or t, [y])
        self.last = y; return None
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for k in list(range(8)) * 2:
    m.kind = k; it = iter([batch(k)[0], "next"]); o = m(it, flag=object()); log.append("|")
    y = list(o)[-1] if k in (0, 1, 6) else o["y"] if k == 2 else o[0] if k == 3 else o.y if k == 4 else o.a if k == 5 else m.last
    loss = y.square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(k, type(o).__name__, next(it), float(loss.detach()).hex())
print(log, M(m))
