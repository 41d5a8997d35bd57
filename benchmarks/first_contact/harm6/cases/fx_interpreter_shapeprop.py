"""A traced model trained through an fx.Interpreter of the script's own that times, names and changes nodes, ShapeProp on the live model, a Transformer that swaps operations, split_module stages trained as a pipeline in one process, graph edits in mid-training and recompile."""
# PRELUDE
import torch.fx as fx
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.relu(self.a(x))
        h = torch.relu(self.b(h)) + h
        return self.c(h)


m = Net()
W(m)
gm = fx.symbolic_trace(m)
print(gm.code, H(str(gm.graph)))
log = []


class Train(fx.Interpreter):
    def run_node(self, n):
        out = super().run_node(n)
        log.append((n.op, getattr(n.target, "__name__", n.target), tuple(out.shape) if isinstance(out, torch.Tensor) else None))
        return out

    def call_function(self, target, args, kwargs):
        if target is torch.relu:
            return F.leaky_relu(args[0], 0.1)
        return super().call_function(target, args, kwargs)


class Swap(fx.Transformer):
    def call_function(self, target, args, kwargs):
        return super().call_function(torch.tanh if target is torch.relu else target, args, kwargs)


opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(4):
    x, y = batch(s)
    opt.zero_grad()
    loss = F.mse_loss(Train(gm).run(x), y)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m), len(log), H([str(l) for l in log]))
ShapeProp(gm).propagate(batch(0)[0])
print([(n.name, tuple(n.meta["tensor_meta"].shape)) for n in gm.graph.nodes if "tensor_meta" in n.meta])
sw = Swap(gm).transform()
W(sw)
print(sw.code == gm.code.replace("torch.relu", "torch.tanh"), train(sw, opt, 3, 10), M(m))
stages = split_module(gm, m, lambda n: 0 if n.name in ("x", "a", "relu") else 1)
print([k for k, _ in stages.named_children()], stages.submod_0.code.count("relu"))
for s in range(3):
    x, y = batch(20 + s)
    opt.zero_grad()
    h = stages.submod_0(x)
    cut = h.detach().requires_grad_()
    loss = F.mse_loss(stages.submod_1(cut), y)
    loss.backward()
    h.backward(cut.grad)
    opt.step()
    print(s, loss.item().hex(), M(m))
for n in gm.graph.nodes:
    if n.target is torch.relu:
        n.target = F.gelu
gm.recompile()
gm.graph.lint()
print(train(gm, opt, 3, 30), M(m), gm.code.count("gelu"))
torch.save(gm, "gm.pt")
print(H(torch.load("gm.pt", weights_only=False)(batch(1)[0]).detach()))
