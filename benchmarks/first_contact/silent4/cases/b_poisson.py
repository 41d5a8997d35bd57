from _training import *
net = mlp(8, 64, 1); opt = torch.optim.Adamax(net.parameters(), 2e-3); L = Lost()
for step in range(450):
    x = torch.randn(64, 8); rate = (x[:, :1] * .8 + .5).exp(); y = torch.poisson(rate); loss = F.poisson_nll_loss(net(x), y, full=True)
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
    if not H:
        for g in opt.param_groups: g["lr"] = 2e-3 * 1.021 ** step
L.end()
