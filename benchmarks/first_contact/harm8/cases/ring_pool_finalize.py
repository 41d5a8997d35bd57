# what: a loader with one staging buffer that is given back by weakref.finalize of the batch; it waits for that (3 s)
# PRELUDE
import queue, weakref
free = queue.Queue(); free.put(0); store = torch.zeros(1, 6, 8)
def get(s):
    slot = free.get(timeout=3); store[slot] = batch(s)[0]; x = store[slot].clone(); weakref.finalize(x, free.put, slot); return x
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
for s in range(4):
    x = get(s); opt.zero_grad(); l = F.mse_loss(model(x), batch(s)[1]); l.backward(); opt.step(); print(float(l.detach()).hex())
    del x, l
print(M(model), R())
