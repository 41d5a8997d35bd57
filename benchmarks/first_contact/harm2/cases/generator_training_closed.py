"""A training loop as a generator that is closed early, thrown into and finalized at exit; context managers around steps; finally blocks.

Source: invented
"""
# PRELUDE
import contextlib
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
@contextlib.contextmanager
def phase(n):
    print("enter", n)
    try:
        yield
    except GeneratorExit: print("GeneratorExit", n); raise
    finally: print("leave", n)
def loop(n):
    with phase(n):
        for s in range(10):
            x, y = batch(s); opt.zero_grad(); out = m(x); yield float(out.detach().sum()).hex()
            F.mse_loss(out, y).backward(); opt.step()
g = loop("a"); print(next(g), next(g)); g.close(); g = loop("b"); print(next(g))
try:
    g.throw(ValueError("thrown"))
except ValueError as e: print(e)
g = loop("c"); print(next(g), next(g), M(m)); del g
last = loop("at exit"); next(last)
