"""Batches lie in multiprocessing.shared_memory; after each step (training, evaluation, inference) the script drops its views and closes and unlinks the block: no BufferError, nothing left in /dev/shm."""
import gc
from multiprocessing import shared_memory
# PRELUDE
m = net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)


def step(s, how):
    shm = shared_memory.SharedMemory(create=True, size=6 * 8 * 4)
    a = np.ndarray((6, 8), np.float32, buffer=shm.buf)
    a[:] = batch(s)[0].numpy()
    x = torch.from_numpy(a)
    if how == "train":
        opt.zero_grad()
        loss = F.mse_loss(m(x), batch(s)[1])
        loss.backward()
        opt.step()
        opt.zero_grad()
    elif how == "eval":
        with torch.no_grad():
            loss = m(x).square().mean()
    elif how == "inference":
        with torch.inference_mode():
            loss = m(x).square().mean()
    else:
        loss = m(x.clone()).mean().detach()
    value = float(loss).hex()
    del x, a, loss
    try:
        shm.close()
        said = "closed"
    except BufferError as e:
        said = f"BufferError {e}"
        gc.collect()
    name = shm.name
    shm.unlink()
    return value, said, os.path.exists("/dev/shm/" + name)


for s in range(12):
    how = ["train", "eval", "inference", "copy"][s % 4]
    print(s, how, *step(s, how), flush=True)
print(M(m))
