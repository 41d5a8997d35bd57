# DDP in a Join context: rank 1 has six batches more than rank 0
from fcutil import *
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank()
torch.manual_seed(0); net = MLP(); ddp = DDP(net)
opt = torch.optim.SGD(net.parameters(), 0.05)
with Join([ddp]):
    for step in range(8 + 6 * r):
        x, y = data(step, r)
        opt.zero_grad()
        out = ddp(x)
        truth(step, "fc2", "output", out)
        loss = F.mse_loss(out, y)
        loss.backward()
        opt.step()
say("rank", r, "loss", loss.item(), digest(net.state_dict(), opt.state_dict()))
dist.destroy_process_group()
