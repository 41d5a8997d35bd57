"""Healthy oddities: learning rate 0, zero weights, the same batch always, frozen model called in training mode, loss without parameters: no stop, status 0.

Source: invented
"""
# PRELUDE
m = net(); W(m)
for p in m.parameters(): nn.init.zeros_(p)
opt = torch.optim.SGD(m.parameters(), 0.0)
for s in range(12): r = train(m, opt, 1, 0)
print(r, M(m)); m.requires_grad_(False); x, y = batch(0); x.requires_grad_(); F.mse_loss(m(x), y).backward(); print(H(x.grad))
k = net(1); W(k); o = torch.optim.SGD(k.parameters(), 0.1)
for s in range(60): r = train(k, o, 1, 0)
print(r, M(k))
