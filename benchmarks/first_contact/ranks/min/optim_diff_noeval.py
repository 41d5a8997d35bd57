# three ranks with different optimizers (SGD, Adam, LBFGS with closures that evaluate several times); a best-of broadcast of weights every 3 steps
from fcutil import *
dist.init_process_group("gloo"); r, w = dist.get_rank(), dist.get_world_size(); torch.manual_seed(0); net = MLP()
opt = [lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), lambda p: torch.optim.Adam(p, 0.01), lambda p: torch.optim.LBFGS(p, lr=0.3, max_iter=4, history_size=4)][r](net.parameters())
for step in range(6):
    x, y = data(step, r)
    def closure():
        opt.zero_grad(); l = F.mse_loss(net(x), y); l.backward(); return l
    loss = opt.step(closure)
    if step % 3 == 2:
        v = torch.tensor(float(r))
        all_v = [torch.zeros(()) for _ in range(w)]; dist.all_gather(all_v, v); best = int(torch.stack(all_v).argmin())
        for p in net.parameters(): dist.broadcast(p.data, best)
        say("rank", r, step, "best", best)
    say("rank", r, step, loss.item(), digest(net.state_dict()))
dist.destroy_process_group()
