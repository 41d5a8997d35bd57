"""MAML through `higher` (patched modules, differentiable optimizer): inner and outer steps.

Source: https://github.com/pytorch/pytorch/issues/79205
"""
# PRELUDE
import higher
m = net(2); W(m)
outer = torch.optim.Adam(m.parameters(), 1e-3)
inner = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    outer.zero_grad()
    for task in range(2):
        x, y = batch(10 * s + task)
        with higher.innerloop_ctx(m, inner, copy_initial_weights=False) as (fm, do):
            for _ in range(2):
                do.step(F.mse_loss(fm(x), y))
            F.mse_loss(fm(x), y).backward()
    outer.step()
    print(H([p.grad for p in m.parameters()]))
print(M(m), R())
