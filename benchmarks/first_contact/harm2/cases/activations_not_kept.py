"""Large outputs and inputs die when the script drops them (weakrefs to activations after backward and after the next step).

Source: https://github.com/jacobgil/pytorch-grad-cam/issues/88
"""
# PRELUDE
import gc, weakref
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); refs = []
h = m[2].register_forward_hook(lambda mod, a, o: refs.append(weakref.ref(o)))
for s in range(5):
    x, y = batch(s); refs.append(weakref.ref(x)); out = m(x); refs.append(weakref.ref(out))
    loss = F.mse_loss(out, y); refs.append(weakref.ref(loss)); opt.zero_grad(); loss.backward(); opt.step(); del x, y, out, loss
    gc.collect(); print(s, sum(r() is not None for r in refs[:-4]))
m(batch(9)[0]); del m, opt; h = None; gc.collect(); print(sum(r() is not None for r in refs[:-1]))
