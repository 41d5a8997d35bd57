# each rank judges its own spike: a rank with a spike sends zeros into the all-reduce and leaves out its optimizer step; then weights are averaged
from fcutil import *
dist.init_process_group("gloo"); r, w = dist.get_rank(), dist.get_world_size(); torch.manual_seed(0)
net = MLP(); opt = torch.optim.Adam(net.parameters(), 1e-2); hist = []
for step in range(12):
    x, y = data(step, r)
    if step in (4, 9) and r == 1: y = y * 1e3
    opt.zero_grad(); loss = F.mse_loss(net(x), y)
    spike = len(hist) > 2 and loss.item() > 10 * sum(hist) / len(hist)
    if not spike:
        hist.append(loss.item()); loss.backward()
    for p in net.parameters():
        g = p.grad if p.grad is not None else torch.zeros_like(p)
        dist.all_reduce(g); g /= w
        if p.grad is not None: p.grad.copy_(g)
    if not spike: opt.step()
    if step % 4 == 3:
        for p in net.parameters():
            dist.all_reduce(p.data); p.data /= w
    say("rank", r, step, loss.item(), spike, digest(net.state_dict()))
dist.destroy_process_group()
