"""__getattr__ that delegates and records, properties with side effects, __setattr__ and __dir__ overridden: what is asked for in training.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/19307
"""
# PRELUDE
log = []
class Inner(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(8, 4)
    def forward(self, x): return self.l(x)
class Wrap(nn.Module):
    def __init__(self, m): super().__init__(); self.m = m
    def __getattr__(self, k):
        try:
            return super().__getattr__(k)
        except AttributeError:
            log.append(k); return getattr(super().__getattr__("m"), k)
    def __setattr__(self, k, v): log.append("set " + k); super().__setattr__(k, v)
    @property
    def costly(self): log.append("costly"); return 1
    @property
    def device(self): log.append("device"); return torch.device("cpu")
    @property
    def broken(self): log.append("broken"); raise RuntimeError("don't touch")
    def __dir__(self): log.append("dir"); return super().__dir__()
    def forward(self, x): return self.m(x)
torch.manual_seed(0); m = Wrap(Inner()); W(m); log.clear()
print(train(m, torch.optim.SGD(m.parameters(), 0.1), 3), log, M(m)); m.l; print(log[-1], [k for k in vars(m) if not k.startswith("_")])
