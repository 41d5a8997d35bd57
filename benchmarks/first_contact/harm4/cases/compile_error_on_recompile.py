"""torch._dynamo.config.error_on_recompile: a compiled training that needs one graph stays with one; counters of frames, graphs and backends' calls; recompile reasons by the script's own log handler."""
# PRELUDE
import logging
import torch._dynamo
from torch._dynamo.utils import counters

torch._dynamo.config.error_on_recompile = True
graphs = []


def backend(gm, inputs):
    graphs.append(sum(n.op == "call_function" or n.op == "call_module" for n in gm.graph.nodes))
    return gm.forward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(8, 16), nn.Linear(16, 4), nn.Dropout(0.1)

    def forward(self, x, scale: int = 1):
        return self.b(self.drop(self.a(x).relu())) * scale


m = Net()
W(m)
c = torch.compile(m, backend=backend, dynamic=False)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(c, opt, 5), len(graphs))
c2 = torch.compile(net(3), backend=backend, dynamic=True)
W(c2)
o2 = torch.optim.SGD(c2.parameters(), 0.05)
for n in (6, 9, 12):
    x, y = batch(n, n)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    o2.zero_grad()
    F.mse_loss(c2(x), y).backward()
    o2.step()
    print(n, H(c2(x)), len(graphs))
try:
    c(batch(1)[0], scale=2)
    c(batch(1)[0].double().float()[:3], scale=3)
except Exception as e:
    print(type(e).__name__)
print(M(m), M(c2), counters["stats"].get("unique_graphs", 0) == len(graphs), sum(counters["graph_break"].values()), R())
