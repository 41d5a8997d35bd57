# DiLoCo by hand: inner AdamW for H steps, pseudo gradients all-reduced, an outer Nesterov SGD; rank 1 does fewer inner steps than rank 0
from fcutil import *
dist.init_process_group("gloo"); r, w = dist.get_rank(), dist.get_world_size(); torch.manual_seed(0)
net = MLP(); outer = [p.detach().clone().requires_grad_() for p in net.parameters()]
inner = torch.optim.AdamW(net.parameters(), 1e-2); opt = torch.optim.SGD(outer, 0.7, momentum=0.9, nesterov=True)
k = 0
for rnd in range(4):
    for _ in range(6 - 2 * r):
        x, y = data(k, r); k += 1
        inner.zero_grad(); loss = F.mse_loss(net(x), y); loss.backward(); inner.step()
    for p, o in zip(net.parameters(), outer):
        d = o.detach() - p.detach(); dist.all_reduce(d); o.grad = d / w
    opt.step()
    with torch.no_grad():
        for p, o in zip(net.parameters(), outer): p.copy_(o)
    say("rank", r, rnd, loss.item(), digest(net.state_dict(), inner.state_dict(), opt.state_dict()))
dist.destroy_process_group()
