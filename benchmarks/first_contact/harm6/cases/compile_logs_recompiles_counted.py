"""torch._logging.set_logs(recompiles, graph_breaks) with a handler that counts records, a training step compiled with backend eager under changing shapes, flags, attributes and a graph break: number of recompiles, of breaks, of graphs, frames' counters; bits."""
import logging
# PRELUDE
import torch._dynamo as dynamo

got = {"recompiles": 0, "graph_breaks": 0}


class Counter(logging.Handler):
    def emit(self, record):
        for k in got:
            if k in record.name:
                got[k] += 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        self.gain = 1.0

    def forward(self, x):
        h = torch.relu(self.a(x)) * self.gain
        if h.shape[0] > 7:
            h = h + 1
        if self.training:
            torch._dynamo.graph_break()
        return self.b(h)


m = Net()
W(m)
graphs = []


def backend(gm, inputs):
    graphs.append(len([n for n in gm.graph.nodes if n.op == "call_function"]))
    return gm.forward


c = torch.compile(m, backend=backend)
torch._logging.set_logs(recompiles=True, graph_breaks=True)
for name in ("torch._dynamo", "torch.__recompiles", "torch._dynamo.symbolic_convert.__graph_breaks", "torch._dynamo.guards.__recompiles"):
    log = logging.getLogger(name)
    for h in list(log.handlers):
        log.removeHandler(h)
    log.addHandler(Counter())
    log.propagate = False
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(10):
    x, y = batch(s, [6, 6, 9, 9, 12, 6, 6, 6, 6, 6][s])
    if s == 5:
        m.eval()
    if s == 6:
        m.train()
        m.gain = 1.5
    if s == 8:
        m.a.weight.requires_grad_(False)
    opt.zero_grad()
    loss = F.mse_loss(c(x), y)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m), len(graphs), got)
print(graphs, {k: v for k, v in dynamo.utils.counters["frames"].items()}, dynamo.utils.counters["stats"].get("unique_graphs"), sum(dynamo.utils.counters["graph_break"].values()))
