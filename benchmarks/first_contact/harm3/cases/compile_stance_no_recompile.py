"""torch.compile (aot_eager) warmed up, then torch.compiler.set_stance('fail_on_recompile') around all further training: no guard fails later; force_eager and eager_on_recompile; counters of graphs."""
# PRELUDE
import torch._dynamo as dy

m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
c = torch.compile(m, backend="aot_eager")


def step(s):
    x, t = batch(s)
    opt.zero_grad()
    l = F.mse_loss(c(x), t)
    l.backward()
    opt.step()
    return l.item().hex()


print([step(s) for s in range(3)])
n = dy.utils.counters["frames"]["ok"]
with torch.compiler.set_stance("fail_on_recompile"):
    print([step(s) for s in range(3, 9)])
    try:
        c(batch(0, n=5)[0])
        print("no error")
    except RuntimeError as e:
        print(str(e).split("stance")[0])
with torch.compiler.set_stance("force_eager"):
    print(step(9))
print(dy.utils.counters["frames"]["ok"] == n, len(dy.utils.counters["graph_break"]), M(m), R())
