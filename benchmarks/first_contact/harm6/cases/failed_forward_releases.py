"""A forward that raises in the middle (bad shape, own exception, MemoryError by hand), in training, evaluation and in the loss: after the except block its inputs, activations and the exception are gone at once (weakrefs), gc switched off."""
import gc, weakref
# PRELUDE
class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x, fail=None):
        h = self.a(x)
        refs.append(weakref.ref(h))
        h = torch.relu(self.b(h))
        refs.append(weakref.ref(h))
        if fail == "own":
            raise MyError("batch too odd")
        if fail == "memory":
            raise MemoryError("by hand")
        if fail == "shape":
            h = h[:, :5]
        return self.c(h)


class MyError(Exception):
    pass


m = Fails()
refs = []
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 3))
gc.collect()
gc.disable()
for k in range(9):
    refs.clear()
    how = ["own", "memory", "shape"][k % 3]
    x = torch.randn(6, 8)
    refs.append(weakref.ref(x))
    try:
        if k < 3:
            m(x, how).sum().backward()
        elif k < 6:
            with torch.no_grad():
                m(x, how)
        else:
            loss = m(x) @ torch.ones(3) if how == "shape" else (m(x).sum() + x.new_ones(()).expand(2, 2)[5] if how == "own" else [][0])
    except (MyError, MemoryError, RuntimeError, IndexError) as e:
        refs.append(weakref.ref(e) if isinstance(e, MyError) else lambda: None)
        print(k, type(e).__name__, str(e)[:60], e.__context__, e.__cause__)
    del x
    print(k, how, [r() is not None for r in refs])
gc.enable()
refs.clear()
print(train(m, opt, 3, 10), M(m), R())
