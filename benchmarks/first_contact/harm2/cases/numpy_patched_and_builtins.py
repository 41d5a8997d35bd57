"""Monkeypatches of the script's own: builtins.print/open, torch.Tensor.__repr__/backward, torch.relu, F.linear, nn.Module.__call__; counts and results.

Source: https://github.com/pytorch/pytorch/pull/85152
"""
# PRELUDE
import builtins, collections
n = collections.Counter()
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 1))
ob, ol, oc, orr = torch.Tensor.backward, F.linear, nn.Module.__call__, torch.Tensor.__repr__
def backward(self, *a, **k): n["backward"] += 1; return ob(self, *a, **k)
def linear(*a, **k): n["linear"] += 1; return ol(*a, **k) * 1.0
def call(self, *a, **k): n["call " + type(self).__name__] += 1; return oc(self, *a, **k)
def rep(self, **k): n["repr"] += 1; return "T"
torch.Tensor.backward, F.linear, nn.Module.__call__, torch.Tensor.__repr__ = backward, linear, call, rep
opened = []; oo = builtins.open
def myopen(*a, **k): opened.append(str(a[0])); return oo(*a, **k)
builtins.open = myopen
print(train(m, opt, 3), sorted(n.items()), [f for f in opened if "/proc" not in f and "site-packages" not in f], torch.ones(1))
builtins.open = oo; print(torch.Tensor.backward is backward, F.linear is linear, nn.Module.__call__ is call)
torch.Tensor.backward, F.linear, nn.Module.__call__, torch.Tensor.__repr__ = ob, ol, oc, orr
print(train(m, opt, 2), sorted(n.items()), M(m), torch.ones(1))
