"""dynamo.explain and a function with graph breaks (print, .item()): number of graphs, reasons, printed text.

Source: https://github.com/pytorch/pytorch/pull/167406
"""
# PRELUDE
import torch._dynamo as dynamo
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 1))
def f(x):
    y = m(x)
    print("in f"); v = y.sum().item()
    return y * (1 if v > 0 else 2)
e = dynamo.explain(f)(batch(0)[0]); print(e.graph_count, e.graph_break_count, e.op_count, [type(r).__name__ for r in e.break_reasons])
c = torch.compile(f, backend="aot_eager")
for s in range(3): o = c(batch(s)[0]); loss = o.square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex())
print(M(m))
