"""Several backwards through one graph, several losses, backward with inputs=, grad with unused and materialized gradients.

Source: https://github.com/pytorch/pytorch/issues/3818
"""
# PRELUDE
m = net(); W(m)
opt = torch.optim.SGD(m.parameters(), 0.05)
for s in range(3):
    x, y = batch(s); x.requires_grad_()
    opt.zero_grad(); out = m(x)
    l1, l2 = F.mse_loss(out, y), out.abs().mean()
    l1.backward(retain_graph=True); a = H([p.grad for p in m.parameters()])
    l2.backward(retain_graph=True, inputs=[m[4].weight, x])
    torch.autograd.backward([l1, l2, out], [None, torch.tensor(0.5), torch.ones_like(out)])
    u = torch.autograd.grad(m(x).sum(), [x, torch.zeros(1, requires_grad=True)], allow_unused=True, materialize_grads=True)
    opt.step(); print(a, M(m), H(list(u)), H(x.grad))
try:
    l1.backward()
except RuntimeError as e:
    print(str(e)[:60])
