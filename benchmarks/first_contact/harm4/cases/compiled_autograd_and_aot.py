"""Compiled autograd, aot_function and aot_module of functorch.compile with counting compilers, min-cut partitioning: results and what the compilers are given."""
# PRELUDE
import torch._dynamo
from functorch.compile import aot_function, aot_module, min_cut_rematerialization_partition, make_boxed_func

seen = []


def fw(gm, inputs):
    seen.append(("fw", len(list(gm.graph.nodes)), len(inputs)))
    return make_boxed_func(gm.forward)


def bw(gm, inputs):
    seen.append(("bw", len(list(gm.graph.nodes)), len(inputs)))
    return make_boxed_func(gm.forward)


m = net(1)
W(m)
a = aot_module(m, fw, bw, partition_fn=min_cut_rematerialization_partition)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(a, opt, 4), seen, M(m))
f = aot_function(lambda x, w: (x @ w).tanh().sum(), fw, bw)
w = nn.Parameter(torch.ones(8, 2) * 0.1)
f(batch(0)[0], w).backward()
print(H(w.grad), seen)
n = net(2)
W(n)
o2 = torch.optim.Adam(n.parameters(), 1e-2)
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    print(train(n, o2, 3))
print(M(n), train(n, o2, 2, 3), M(n))
try:
    with torch._dynamo.config.patch(compiled_autograd=True):
        k = torch.compile(net(4), backend="aot_eager")
        W(k)
        o3 = torch.optim.SGD(k.parameters(), 0.05)

        @torch.compile(backend="aot_eager")
        def step(x, y):
            loss = F.mse_loss(k(x), y)
            loss.backward()
            return loss
        for s in range(3):
            o3.zero_grad()
            print(float(step(*batch(s)).detach()).hex())
            o3.step()
        print(M(k))
except Exception as e:
    print(type(e).__name__, str(e)[:60])
print(R())
