"""A model with __len__ 0, one whose __bool__ raises, one that is iterable with side effects, one with __contains__ and __getitem__.

Source: invented, after wrapped modules such as Lightning-AI/pytorch-lightning/issues/19307
"""
# PRELUDE
log = []
class Empty(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8)
    def __len__(self): log.append("len"); return 0
    def forward(self, x): return self.l(x)
class NoBool(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 8)
    def __bool__(self): raise TypeError("no truth")
    def forward(self, x): return self.l(x)
class Iter(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4)
    def __iter__(self): log.append("iter"); yield self.l
    def __getitem__(self, k): log.append("item"); raise KeyError(k)
    def __contains__(self, k): log.append("contains"); return False
    def __call__(self, *a, **k): log.append("call"); return super().__call__(*a, **k)
    def forward(self, x): return self.l(x)
class All(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b, self.c = Empty(), NoBool(), Iter()
    def __len__(self): log.append("len"); return 0
    def forward(self, x): return self.c(self.b(self.a(x)))
torch.manual_seed(0); m = All(); W(m); print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), log, M(m))
