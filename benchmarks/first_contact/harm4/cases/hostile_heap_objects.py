"""Objects in the heap that do not like to be looked at: unbound LocalProxy objects, a __class__ that raises, a __getattr__ that counts, a lazy module that imports."""
# PRELUDE
from werkzeug.local import Local, LocalProxy

local = Local()
proxies = [LocalProxy(local, "nobody") for _ in range(3)]
touched = []


class Touchy:
    @property
    def __class__(self):
        touched.append("class")
        raise RuntimeError("working outside of context")

    def __getattr__(self, name):
        touched.append(name)
        raise AttributeError(name)

    def __eq__(self, other):
        touched.append("eq")
        raise RuntimeError("no comparison")

    __hash__ = None


class Lazy:
    def __getattribute__(self, name):
        touched.append(name)
        return object.__getattribute__(self, name)


keep = [Touchy() for _ in range(5)] + [Lazy() for _ in range(5)]
m = net(12)
c = torch.compile(m, backend="eager")
x, y = batch(0)
print(H(c(x)))
touched.clear()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(c, opt, 4), M(m))
c2 = torch.compile(net(13), backend="eager")
W(c2)
print(train(c2, torch.optim.SGD(c2.parameters(), 0.05), 3))
print(len(keep), touched, R())
