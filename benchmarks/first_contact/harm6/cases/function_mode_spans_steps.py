"""A TorchFunctionMode of the script that counts functions, entered between forward and loss and left in the middle of a later step, for twenty steps; generators that hold it open; nested modes left in order; what the mode's own counts of matmul, mse_loss and linear are."""
import contextlib
# PRELUDE
from torch.overrides import TorchFunctionMode


class Count(TorchFunctionMode):
    def __init__(self, name):
        self.name, self.n = name, {}

    def __torch_function__(self, f, types, args=(), kwargs=None):
        k = getattr(f, "__name__", str(f))
        if k in ("linear", "mse_loss", "matmul", "relu", "tanh", "dropout", "stack"):
            self.n[k] = self.n.get(k, 0) + 1
        return f(*args, **(kwargs or {}))


def region(mode):
    with mode:
        while True:
            yield mode.n


m = net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
modes, open_mode, gen = [], None, None
for s in range(24):
    x, y = batch(s)
    opt.zero_grad()
    out = m(x)
    if s % 4 == 1:
        open_mode = Count(f"span {s}")
        open_mode.__enter__()
        modes.append(open_mode)
    loss = F.mse_loss(out, y) + 0.1 * torch.stack([p.square().sum() for p in m.parameters()]).sum()
    if s % 4 == 3:
        open_mode.__exit__(None, None, None)
    loss.backward()
    if s == 12:
        gen = region(Count("generator"))
        next(gen)
    opt.step()
    if s == 14:
        print(dict(next(gen)))
        gen.close()
    if s >= 16 and s % 2 == 0:
        with contextlib.ExitStack() as es:
            inner = [es.enter_context(Count(f"n{k}")) for k in range(3)]
            z = m(x)
            es.pop_all().close()
            print([c.n for c in inner], H(z.detach()))
    print(s, loss.item().hex(), M(m), [c.n for c in modes[-1:]])
try:
    with Count("raises") as c:
        m(torch.ones(2, 3))
except RuntimeError as e:
    print(c.n, str(e)[:60])
print([(c.name, c.n) for c in modes], train(m, opt, 2, 40), M(m), R())
