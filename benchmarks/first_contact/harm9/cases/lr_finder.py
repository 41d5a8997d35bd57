"""LR range test (pytorch-lr-finder): the rate rises until the loss diverges, to inf or nan; stops there, restores model and optimizer, trains."""
# PRELUDE
import copy
seed(7)
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
watch(net)
opt = torch.optim.SGD(net.parameters(), 1e-7, momentum=0.9)


def range_test(end_lr, num):
    kept = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: (end_lr / 1e-7) ** (i / (num - 1)))
    best, hist = None, []
    for i in range(num):
        x = torch.randn(32, 8)
        opt.zero_grad()
        loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
        v = loss.item()
        hist.append((opt.param_groups[0]["lr"], v))
        if best is not None and (v > 5 * best or math.isnan(v)):
            print("Stopping early, the loss has diverged")
            break
        loss.backward()
        opt.step()
        sched.step()
        best = v if best is None else min(best, v)
    net.load_state_dict(kept[0]); opt.load_state_dict(kept[1])
    return hist


h = range_test(100, 60)
print(len(h), dig(h))
h2 = range_test(1e30, 12)
print(len(h2), dig(h2), h2[-1][1] > 1e10)
lr = min(h[5:-3], key=lambda p: p[1])[0] / 10
for g in opt.param_groups:
    g["lr"] = g["initial_lr"] = lr
for step in range(20):
    x = torch.randn(32, 8)
    loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
    opt.zero_grad(); loss.backward(); opt.step()
print(repr(lr), dig(loss))
end(net, opt)
