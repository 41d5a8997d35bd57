"""A model is trained as it is, as an fx graph that is edited, as a scripted and a traced module, as an exported one, by Interpreter; with nan in evaluation of each."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
import torch.fx as fx
seed(92)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 12), nn.Linear(12, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Counting(fx.Interpreter):
    n = 0

    def run_node(self, node):
        Counting.n += 1
        return super().run_node(node)


base = Net()
watch(base)
x, y = torch.randn(16, 5), torch.randint(0, 2, (16,))


def train(name, call, params):
    opt = torch.optim.SGD(params, 0.1)
    for step in range(5):
        loss = F.cross_entropy(call(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        e = call(x / 0)
    print(name, dig(loss, e))


train("eager", base, base.parameters())
gm = fx.symbolic_trace(base)
for n in gm.graph.nodes:
    if n.target is torch.relu:
        n.target = torch.tanh
gm.recompile()
watch(gm)
print(gm.code.strip())
train("fx", gm, gm.parameters())
train("interp", lambda v: Counting(gm).run(v), gm.parameters())
print(Counting.n)
s = torch.jit.script(base)
watch(s) if False else None
train("script", s, s.parameters())
t = torch.jit.trace(base, x)
train("trace", t, t.parameters())
ep = torch.export.export(base, (x,)).module()
train("export", ep, ep.parameters())
ep2 = torch.export.export(gm, (x,))
print([n.op for n in ep2.graph.nodes], len(list(t.graph.nodes())))
c = torch.compile(base, backend="eager", fullgraph=True)
train("compile", c, base.parameters())
seen = []


def backend(g, inputs):
    seen.append(len(g.graph.nodes))
    return g.forward


torch._dynamo.reset()
train("own", torch.compile(gm, backend=backend), gm.parameters())
print(len(seen) > 0)
end(base)
