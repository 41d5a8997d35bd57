"""Per-sample gradients with vmap(grad(functional_call)), randomness="different", ensembles by stack_module_state.

Source: https://pytorch.org/docs/stable/generated/torch.func.stack_module_state.html
"""
# PRELUDE
from torch.func import functional_call, grad, stack_module_state, vmap
m = net(); W(m)
d = {k: v.detach() for k, v in m.named_parameters()}
x, y = batch(0)
g = vmap(grad(lambda p, a, b: F.mse_loss(functional_call(m, p, (a[None],)), b[None])), (None, 0, 0))(d, x, y)
print(H(g))
ms = [net(s) for s in range(3)]
p, b = stack_module_state(ms)
print(H(vmap(lambda pp, bb, a: functional_call(ms[0], (pp, bb), (a,)), (0, 0, None))(p, b, x)))
torch.manual_seed(0); print(H(vmap(lambda a: F.dropout(a), randomness="different")(x)), R())
opt = torch.optim.Adam(p.values(), 1e-2)
for s in range(3):
    x, y = batch(s)
    out = vmap(lambda pp, bb, a: functional_call(ms[0], (pp, bb), (a,)), (0, 0, None))(p, b, x)
    loss = (out - y).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex())
print(H(p), train(m, torch.optim.SGD(m.parameters(), 0.1), 3), M(m))
