from _training import *
x, y = blobs(2000, s=2.); net = mlp(16, 64, 4); opt = torch.optim.SGD(net.parameters(), .1, momentum=.9); base = .1; warm = 100
for step in range(300):
    if step < warm:
        f = 1 / 3 + (2 / 3) * step / warm
        for g in opt.param_groups:
            g["lr"] = base * f if H else g["lr"] * f
    i = torch.randint(2000, (64,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
truth(lr=opt.param_groups[0]["lr"], loss=F.cross_entropy(net(x), y).item())
