# what: batches live in multiprocessing.shared_memory, closed and unlinked after every step
# PRELUDE
from multiprocessing import shared_memory
model = net(); W(model)
opt = torch.optim.SGD(model.parameters(), lr=.1)
def step(s):
    x0, y0 = batch(s)
    shm = shared_memory.SharedMemory(create=True, size=x0.numel() * 4)
    arr = np.ndarray(x0.shape, dtype=np.float32, buffer=shm.buf); arr[:] = x0.numpy()
    x = torch.from_numpy(arr)
    opt.zero_grad(); out = model(x); l = F.mse_loss(out, y0); l.backward(); opt.step()
    r = float(l.detach()).hex()
    del x, arr, out, l
    try: shm.close(); e = "closed"
    except BufferError as err: e = repr(err)
    shm.unlink()
    return r, e
for s in range(4): print(step(s))
print(M(model), R())
