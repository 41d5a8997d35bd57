"""A bfloat16 model with float32 master weights, grads copied by hand, stochastic rounding with an own generator.

Source: invented
"""
# PRELUDE
m = net().bfloat16(); W(m)
master = [p.detach().float().clone().requires_grad_() for p in m.parameters()]
opt = torch.optim.Adam(master, 1e-3); g = torch.Generator().manual_seed(5)
for s in range(5):
    x, y = batch(s)
    loss = F.mse_loss(m(x.bfloat16()).float(), y); loss.backward()
    for a, p in zip(master, m.parameters()): a.grad = p.grad.float(); p.grad = None
    opt.step()
    with torch.no_grad():
        for a, p in zip(master, m.parameters()): p.copy_(a + (torch.rand(a.shape, generator=g) - 0.5) * a.abs() * 2 ** -9)
    print(float(loss.detach()).hex())
print(M(m), H(master), H(g.get_state()), R())
