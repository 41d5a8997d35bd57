"""A thinc model that wraps a torch module (begin_update, finish_update): predictions and weights.

Source: https://github.com/explosion/thinc (PyTorchWrapper)
"""
# PRELUDE
from thinc.api import PyTorchWrapper, Adam, fix_random_seed
fix_random_seed(0)
t = net(1)
m = PyTorchWrapper(t)
opt = Adam(0.01)
for s in range(4):
    x, y = batch(s)
    out, back = m.begin_update(x.numpy())
    back((out - y.numpy()) / len(x))
    m.finish_update(opt)
    print(H(np.asarray(out)))
print(H(dict(t.state_dict())), R())
