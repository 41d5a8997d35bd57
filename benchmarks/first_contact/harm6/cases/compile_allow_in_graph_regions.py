"""torch.compile (eager and aot_eager) with allow_in_graph, disable, mark_dynamic, nested_compile_region, a compiled optimizer-free update, module hooks inside graphs, saved cache artifacts and reset in mid-training: the graphs, values, weights."""
# PRELUDE
import torch._dynamo as dynamo

calls = []


@torch._dynamo.allow_in_graph
def opaque(x):
    return x * torch.sigmoid(x)


@torch.compiler.disable
def outside(x):
    calls.append(tuple(x.shape))
    return x + 0.5


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return opaque(self.fc(x)) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x, out=False):
        for l in self.layers:
            x = region(l, x)
        if out:
            x = outside(x)
        return self.head(x)


region = torch.compiler.nested_compile_region(lambda l, x: l(x)) if os.environ.get("NESTED") else (lambda l, x: l(x))
m = Net()
seen = []
m.layers[1].register_forward_hook(lambda mod, a, y: y * 1.01)
W(m)
for backend in ("eager", "aot_eager"):
    dynamo.reset()
    texts = []

    def mine(gm, inputs):
        texts.append(gm.code)
        return gm.forward

    c = torch.compile(m, backend=mine if backend == "eager" else backend, dynamic=None)
    opt = torch.optim.AdamW(m.parameters(), 1e-2)
    for s in range(6):
        x, y = batch(s, 6 + s % 3)
        if s < 2:
            dynamo.mark_dynamic(x, 0)
        opt.zero_grad()
        loss = F.mse_loss(c(x, s == 4), y)
        loss.backward()
        opt.step()
        print(backend, s, loss.item().hex(), M(m))
        if s == 3:
            torch.compiler.reset()
    print(len(texts), [H(t.count("torch.nn.functional") or t.count("linear")) for t in texts], len(calls))


@torch.compile(backend="eager", fullgraph=True)
def update(ps, gs, lr):
    torch._foreach_add_(ps, gs, alpha=-lr)


for s in range(3):
    m.zero_grad()
    F.mse_loss(m(batch(s)[0]), batch(s)[1]).backward()
    with torch.no_grad():
        update(list(m.parameters()), [p.grad for p in m.parameters()], 0.01)
    print(M(m))
print(dynamo.utils.counters["stats"].get("unique_graphs"), torch.compiler.is_compiling(), R())
