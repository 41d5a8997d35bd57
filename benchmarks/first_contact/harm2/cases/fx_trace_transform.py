"""fx symbolic_trace of a trained model, an Interpreter with its own log, a transformed GraphModule trained on, make_fx.

Source: https://github.com/pytorch/pytorch/pull/104838
"""
# PRELUDE
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); print(train(m, opt, 2)); g = fx.symbolic_trace(m); print(g.code)
log = []
class I(fx.Interpreter):
    def call_module(self, t, a, k): log.append(t); return super().call_module(t, a, k)
print(H(I(g).run(batch(0)[0])), log)
for n in g.graph.nodes:
    if n.target == "1":
        with g.graph.inserting_after(n): r = g.graph.call_function(F.silu, (n.args[0],)); n.replace_all_uses_with(r)
        g.graph.erase_node(n)
g.recompile(); print(train(g, torch.optim.SGD(g.parameters(), 0.1), 2), M(g)); p = make_fx(lambda x: m(x).sum())(batch(0)[0]); print([str(n.target) for n in p.graph.nodes])
print(train(m, opt, 1), M(m))
