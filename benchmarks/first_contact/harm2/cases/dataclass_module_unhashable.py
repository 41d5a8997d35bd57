"""Modules that are dataclasses with eq=True, hence without a hash; modules whose __eq__ compares weights.

Source: https://github.com/patrick-kidger/equinox/pull/751 (modules as dataclasses)
"""
# PRELUDE
from dataclasses import dataclass
@dataclass(eq=False)
class A(nn.Module):
    h: int = 8
    def __post_init__(self): super().__init__(); self.l = nn.Linear(self.h, 4)
    def forward(self, x): return self.l(x)
class B(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8); self.n = 0
    def __eq__(self, o): self.n += 1; return torch.equal(self.l.weight, o.l.weight)
    __hash__ = nn.Module.__hash__
    def forward(self, x): return self.l(x)
torch.manual_seed(0); m = nn.Sequential(B(), nn.ReLU(), A()); W(m)
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 4), M(m), m[0].n, m[2])
