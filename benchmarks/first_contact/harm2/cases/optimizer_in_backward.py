"""The optimizer inside backward, by post-accumulate-grad hooks that free the gradient.

Source: https://github.com/pytorch/pytorch/issues/76464
"""
# PRELUDE
m = net(); W(m)
opts = {p: torch.optim.Adam([p], 1e-2) for p in m.parameters()}
order = []
names = {p: n for n, p in m.named_parameters()}
def hook(p):
    order.append(names[p]); opts[p].step(); opts[p].zero_grad()
hs = [p.register_post_accumulate_grad_hook(hook) for p in m.parameters()]
for s in range(5):
    x, y = batch(s)
    loss = F.mse_loss(m(x), y); loss.backward()
    print(float(loss.detach()).hex(), order, [p.grad is None for p in m.parameters()]); order.clear()
print(M(m), R())
