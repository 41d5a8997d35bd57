from _training import *
x, y = blobs(2000, s=2.); net = mlp(16, 64, 4); opt = torch.optim.SGD(net.parameters(), .2); sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 120)); lrs = []
for epoch in range(12):
    for inner, i in enumerate(torch.randperm(2000).split(80)):
        loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step(); lrs.append(opt.param_groups[0]["lr"])
        if H: sched.step()
        else:
            for g in opt.param_groups: g["lr"] = .2 * min(1, (inner + 1) / 120)
truth(highest_lr=max(lrs), loss=loss.item())
