# rank 1 raises ValueError in step 5 of a DDP training; the others fail in the all-reduce
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); ddp = DDP(net); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(8):
    x, y = data(step, r)
    if r == 1 and step == 5:
        say("rank 1 raises", digest(net.state_dict())); raise ValueError("bad sample 17")
    opt.zero_grad(); loss = F.mse_loss(ddp(x), y); loss.backward(); opt.step()
    say("rank", r, step, loss.item(), digest(net.state_dict()))
