# three ranks train apart and get the same weights every third step (broadcast of rank 0's): 30 steps. docs/alerts/data.md: silent where weights are the same again within 15 steps. V=bc broadcast, V=avg all_reduce average, V=lbfgs rank 2 with LBFGS, V=six: 6 steps, V=skip: rank 1 leaves out its step 4
from fcutil import *
V = os.environ["V"]
dist.init_process_group("gloo"); r, w = dist.get_rank(), dist.get_world_size(); torch.manual_seed(0); net = MLP()
opt = torch.optim.LBFGS(net.parameters(), lr=0.3, max_iter=3) if V == "lbfgs" and r == 2 else torch.optim.SGD(net.parameters(), 0.05)
for step in range(6 if V == "six" else 30):
    x, y = data(step, r)
    def closure():
        opt.zero_grad(); l = F.mse_loss(net(x), y); l.backward(); return l
    if not (V == "skip" and r == 1 and step == 4): opt.step(closure)
    if step % 3 == 2:
        for p in net.parameters():
            if V == "avg": dist.all_reduce(p.data); p.data /= w
            else: dist.broadcast(p.data, 0)
