"""After a forward without gradients the script closes a mmap, resizes a bytearray and a NumPy array, and releases a memoryview that the input was made of; each raises where somebody still holds the input."""
import mmap
# PRELUDE
import warnings

warnings.simplefilter("ignore")
m = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
data = batch(0)[0].numpy().tobytes()


def use(x, how):
    with torch.inference_mode() if how else torch.no_grad():
        return H(m(x.view(6, 8) if x.dim() == 1 else x))


def tried(f):
    try:
        f()
        return "ok"
    except (BufferError, ValueError) as e:
        return f"{type(e).__name__}: {e}".split("\n")[0]


for k in range(4):
    how = k % 2
    mm = mmap.mmap(-1, len(data))
    mm[:] = data
    x = torch.frombuffer(mm, dtype=torch.float32)
    h = use(x, how)
    del x
    print(k, "mmap", h, tried(mm.close))
    ba = bytearray(data)
    x = torch.frombuffer(ba, dtype=torch.float32)
    h = use(x, how)
    del x
    print(k, "bytearray", h, tried(lambda: ba.extend(b"more")), len(ba))
    a = np.frombuffer(data, np.float32).copy()
    x = torch.from_numpy(a)
    h = use(x, how)
    del x
    print(k, "numpy", h, sys.getrefcount(a), tried(lambda: a.resize(100)), a.shape)
    mv = memoryview(bytearray(data))
    x = torch.frombuffer(mv, dtype=torch.float32)
    h = use(x, how)
    del x
    print(k, "memoryview", h, tried(mv.release))
    print(train(m, opt, 2, 2 * k), M(m))
