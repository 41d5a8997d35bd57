# three ranks, gossip: each sends its loss statistics to the next one, which scales its loss by what it received; rank 2 receives zeros in step 3 and divides
from fcutil import *
dist.init_process_group("gloo"); r, w = dist.get_rank(), dist.get_world_size(); torch.manual_seed(0)
net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.02)
for step in range(7):
    x, y = data(step, r); out = net(x); per = (out - y).square().mean(1)
    mine = per.detach().mean().reshape(1)
    if r == 1 and step == 3: mine = torch.zeros(1)
    got = torch.empty(1); req = dist.isend(mine, (r + 1) % w); dist.recv(got, (r - 1) % w); req.wait()
    opt.zero_grad()
    weight = per.detach() / got # FAULT
    loss = (weight * per).mean()
    loss.backward(); opt.step()
    say("rank", r, step, loss.item())
say("rank", r, digest(net.state_dict())); dist.destroy_process_group()
