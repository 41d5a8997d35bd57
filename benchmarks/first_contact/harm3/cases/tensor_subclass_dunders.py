"""Tensor subclasses with their own __hash__ (raises), __eq__, __bool__, __len__, __iter__, __format__, __repr__ that count or raise, as inputs, outputs, loss and parameters: nobody else calls them."""
# PRELUDE
calls = []


class T(torch.Tensor):
    __hash__ = None

    def __bool__(self):
        calls.append("bool")
        raise RuntimeError("no truth")

    def __len__(self):
        calls.append("len")
        return 0

    def __iter__(self):
        calls.append("iter")
        raise TypeError("no iteration")

    def __repr__(self):
        calls.append("repr")
        return "T"

    def __float__(self):
        calls.append("float")
        return 1.0

    def tolist(self):
        calls.append("tolist")
        return super().tolist()

    @property
    def is_cuda(self):
        calls.append("is_cuda")
        return False


def wrap(t):
    return t.as_subclass(T)


m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    x, t = batch(s)
    opt.zero_grad()
    y = m(wrap(x))
    loss = F.mse_loss(y, wrap(t))
    print(type(y).__name__, type(loss).__name__, loss.as_subclass(torch.Tensor).item().hex())
    loss.backward()
    opt.step()
print(calls, M(m), type(m[0].weight.grad).__name__)
