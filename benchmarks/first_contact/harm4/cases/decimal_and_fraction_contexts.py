"""decimal's context traps inexact results and mixing with floats; hooks and a Function of the script's compute in it; the context is the same at the end."""
# PRELUDE
import decimal
from decimal import Decimal as D

ctx = decimal.getcontext()
ctx.prec = 6
for trap in (decimal.FloatOperation, decimal.Clamped, decimal.Subnormal):
    ctx.traps[trap] = True
m = net(10)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
log = []
h = m[0].register_forward_hook(lambda mod, a, out: log.append(str(D(repr(float(out.mean().detach()))).quantize(D("0.001")) + ctx.prec)))
print(train(m, opt, 4), log)
try:
    D(1) < 0.5
except decimal.FloatOperation as e:
    print(type(e).__name__)
with decimal.localcontext() as inner:
    inner.prec = 3
    inner.traps[decimal.Inexact] = True
    h.remove()
    try:
        D(1) / 3
    except decimal.Inexact:
        print("inexact", train(m, opt, 2, 4))
print(sorted(str(f.__name__) for f, on in ctx.flags.items() if on), ctx.prec, M(m), R())
