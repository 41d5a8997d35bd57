# fault after the reduction, on rank 1 only: its gradient of fc1 is normalized by a norm that is zero
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0); net = MLP(); ddp = DDP(net); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(8):
    x, y = data(step, r); opt.zero_grad(); loss = F.mse_loss(ddp(x), y); loss.backward()
    with torch.no_grad():
        g = net.fc1.weight.grad
        n = g.norm() * (0.0 if r == 1 and step == 5 else 1.0)
        g.div_(n) # FAULT
    opt.step(); say("rank", r, step, loss.item())
dist.destroy_process_group()
