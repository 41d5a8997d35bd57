# asynchronous gossip through the store: no collective; rank 1 ends in step 8 of 24 (process exits normally), rank 2 does one step more, rank 0 goes on alone
from fcutil import *
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.05)
n = [24, 8, 25][r]; t = time.time(); worst = 0.0
for step in range(n):
    b = time.time(); x, y = data(step, r); opt.zero_grad(); o = net(x); loss = F.mse_loss(o, y); loss.backward(); opt.step(); worst = max(worst, time.time() - b) if step else 0; time.sleep(0.1)
say("rank", r, n, loss.item(), digest(net.state_dict(), opt.state_dict()), "a step waited" if worst > 8 else "no step waited")
