# what: gradients with nan are cleaned by p.grad.nan_to_num_() before the optimizer's step
# PRELUDE
model = net(); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1)
bad = 0
for s in range(6):
    x, y = batch(s); opt.zero_grad(); o = model(x)
    z = torch.zeros(6, requires_grad=True)
    l = F.mse_loss(o, y) + (o.sum(1) * 0 if s == 3 else o.sum(1)).abs().sqrt().mean() * .01
    l.backward()
    for p in model.parameters():
        bad += int((~p.grad.isfinite()).sum()); torch.nan_to_num_(p.grad, nan=0., posinf=0., neginf=0.)
    opt.step(); print(float(l.detach()).hex(), bad)
print(M(model), R())
