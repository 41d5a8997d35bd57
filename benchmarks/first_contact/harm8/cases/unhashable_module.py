# what: modules made by @dataclass (no hash), with __slots__-like refusals in __setattr__, with __call__ and _call_impl of their own
# PRELUDE
import dataclasses
@dataclasses.dataclass(eq=True)
class D(nn.Module):
    w: int = 8
    def __post_init__(self): nn.Module.__init__(self); self.f = nn.Linear(self.w, self.w)
    def forward(self, x): return torch.tanh(self.f(x))
D.__hash__ = nn.Module.__hash__
class Locked(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(8, 4); self.__dict__["locked"] = True
    def __setattr__(self, k, v):
        if self.__dict__.get("locked"): raise AttributeError("locked: " + k)
        super().__setattr__(k, v)
    def __delattr__(self, k): raise AttributeError("locked: " + k)
    def __call__(self, x, *, scale=1.): self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1; return super().__call__(x * scale)
    def forward(self, x): return self.f(x)
class Any(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(8, 8)
    def __getattr__(self, k):
        try: return super().__getattr__(k)
        except AttributeError:
            if k.startswith("__"): raise
            return lambda *a, **q: f"anything {k}"
    def forward(self, x): return self.f(x)
m = nn.Sequential(D(), Any(), Locked()); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
print(train(m, opt, 4), m[2].calls, m[1].foo(), M(m), sorted(m[2].__dict__.keys() - set(nn.Module().__dict__)), R())
