"""functorch.compile.aot_function and aot_module with own forward and backward compilers and the min-cut partitioner: texts of the graphs, counts of nodes and of saved values, weights after training."""
# PRELUDE
from functorch.compile import aot_function, aot_module, default_partition, make_boxed_func, min_cut_rematerialization_partition

graphs = []


def compiler(kind):
    def take(gm, inputs):
        graphs.append((kind, gm.code.strip(), len(inputs)))
        return make_boxed_func(gm.forward)

    return take


m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
print(train(m, opt, 2), M(m))
for name, part in (("default", default_partition), ("cut", min_cut_rematerialization_partition)):
    compiled = aot_module(m, fw_compiler=compiler(name + " fw"), bw_compiler=compiler(name + " bw"), partition_fn=part)
    for s in range(3):
        x, y = batch(s)
        opt.zero_grad()
        loss = F.mse_loss(compiled(x), y)
        loss.backward()
        opt.step()
        print(name, s, loss.item().hex(), M(m))


def loss_fn(pred, y):
    return (pred - y).square().mean() + 0.1 * torch.logsumexp(pred, -1).mean()


fast = aot_function(loss_fn, fw_compiler=compiler("loss fw"), bw_compiler=compiler("loss bw"))
for s in range(3):
    x, y = batch(10 + s)
    opt.zero_grad()
    loss = fast(m(x), y)
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), M(m))
for kind, code, n in graphs:
    print(kind, n, H(code), code.count("\n"))
print(graphs[-1][1], R())
