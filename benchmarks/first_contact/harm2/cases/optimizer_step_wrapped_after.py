"""The script itself replaces optimizer.step on the instance, on the class and through functools.partial; counts and results.

Source: https://github.com/pytorch/torchtitan/pull/3052
"""
# PRELUDE
import functools, types
m = net(); W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
n = [0, 0, 0]
orig = opt.step
def mine(*a, **k):
    n[0] += 1
    return orig(*a, **k)
opt.step = mine
print(train(m, opt, 2))
cls = torch.optim.Adam.step
def clsstep(self, *a, **k):
    n[1] += 1
    return cls(self, *a, **k)
torch.optim.Adam.step = clsstep
o2 = torch.optim.Adam(m.parameters(), 1e-2)
print(train(m, o2, 2))
o2.step = functools.partial(types.MethodType(clsstep, o2))
print(train(m, o2, 2), n, M(m))
torch.optim.Adam.step = cls
print(train(m, torch.optim.Adam(m.parameters(), 1e-2), 2), n, M(m))
