# what: eager higher-order operators (while_loop, scan, associative_scan, map) in a model and in the loss
# PRELUDE
from torch._higher_order_ops.while_loop import while_loop
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.associative_scan import associative_scan
model = net(o=8); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
def tryit(name, f):
    try: return f()
    except Exception as e: print(name, type(e).__name__, str(e)[:80].replace("\n", " ")); return None
for s in range(3):
    x, _ = batch(s); opt.zero_grad(); o = model(x)
    w = tryit("while", lambda: while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * .5 + 1), (torch.tensor(0), o.detach())))
    c = tryit("scan", lambda: scan(lambda c, a: (c * .5 + a, c * a), o[0] * 0, o, dim=0))
    a = tryit("assoc", lambda: associative_scan(lambda p, q: p + q, o.detach(), 0, combine_mode="generic"))
    print(H(w), H(c), H(a)); l = o.pow(2).mean() + (c[0].mean() if c else 0); l.backward(); opt.step(); print(float(l.detach()).hex(), M(model))
print(R())
