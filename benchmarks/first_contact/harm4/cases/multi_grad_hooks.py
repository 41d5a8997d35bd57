"""register_multi_grad_hook in modes all and any, node hooks and prehooks of grad_fn, their order and how often they run; removed within themselves."""
# PRELUDE
from torch.autograd.graph import register_multi_grad_hook

m = net(15)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
log = []
mods = []
for s in range(5):
    x, y = batch(s)
    opt.zero_grad()
    h1 = m[:2](x)
    h2 = m[2:4](h1)
    out = m[4](h2)
    loss = F.mse_loss(out, y)
    a = register_multi_grad_hook((h1, h2, m[0].weight), lambda gs: log.append(("all", [g is not None for g in gs], H([g for g in gs if g is not None]))))
    b = register_multi_grad_hook((h1, h2), lambda g: log.append(("any", H(g))), mode="any")
    loss.grad_fn.register_prehook(lambda g: log.append(("pre", H(g))))
    handle = out.grad_fn.register_hook(lambda gi, go: (log.append(("node", len(gi), H(go))), handle.remove()) and None)
    loss.backward(retain_graph=s == 2)
    if s == 2:
        loss.backward()
    a.remove()
    b.remove()
    opt.step()
y2 = m(batch(7)[0])
register_multi_grad_hook((y2, m[0].weight, m[4].weight), lambda gs: log.append(("last", H(gs))))
y2.sum().backward()
for l in log:
    print(*l)
print(len(log), M(m), R())
