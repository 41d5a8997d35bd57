"""A tensor subclass with __torch_function__ that writes down each function it sees: the log is the script's alone (promised).

Source: https://github.com/pytorch/pytorch/issues/47117
"""
# PRELUDE
log = []
class T(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(getattr(func, "__name__", str(func))); return super().__torch_function__(func, types, args, kwargs or {})
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    x, y = batch(s); out = m(x.as_subclass(T)); loss = (out - y).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(type(out).__name__, type(loss).__name__)
    log.append("|")
print(log); print(M(m))
