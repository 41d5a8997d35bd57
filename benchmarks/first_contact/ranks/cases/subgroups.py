# four ranks, two groups of two: each group trains its own ensemble member in DDP over its subgroup; group 1 trains longer
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); k = r // 2
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
torch.manual_seed(k); net = MLP(8, 12 + 4 * k, 4); ddp = DDP(net, process_group=groups[k]); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(6 + 4 * k):
    x, y = data(step, r); opt.zero_grad(); o = ddp(x); loss = F.mse_loss(o, y); loss.backward(); opt.step()
say("rank", r, loss.item(), digest(net.state_dict())); dist.barrier()
dist.destroy_process_group()
