"""WeakTensorKeyDictionary, WeakIdKeyDictionary and WeakKeyDictionary keyed by weights, activations and modules: entries go when the script lets go, and when weights are swapped."""
# PRELUDE
import weakref
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

m = net(6)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
acts, grads, mods = WeakTensorKeyDictionary(), WeakTensorKeyDictionary(), weakref.WeakKeyDictionary()
ids = WeakIdKeyDictionary()
for k in m:
    mods[k] = type(k).__name__
for s in range(5):
    x, y = batch(s)
    h = m[:3](x)
    acts[h] = s
    out = m[3:](h)
    acts[out] = -s
    loss = F.mse_loss(out, y)
    ids[loss] = s
    opt.zero_grad()
    loss.backward()
    for p in m.parameters():
        grads[p.grad] = s
    opt.step()
    del x, y
    print(s, sorted(acts.values()), sorted(grads.values()), list(ids.values()), len(mods))
    del h, out, loss
    print(s, sorted(acts.values()), list(ids.values()))
opt.zero_grad()
print(sorted(grads.values()))
m[4] = nn.Linear(16, 4)
opt = torch.optim.SGD(m.parameters(), 0.05)
train(m, opt, 2)
import gc

gc.collect()
print(len(mods), sorted(grads.values()), M(m), R())
