# trains alone, then in a group made late, destroyed, made again under another store and destroyed early; goes on alone
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
r = rank(); torch.manual_seed(0); net = MLP(); opt = torch.optim.SGD(net.parameters(), 0.05); n = 0
def train(m, k):
    global n
    for _ in range(k):
        x, y = data(n, r); opt.zero_grad(); o = m(x); loss = F.mse_loss(o, y); loss.backward(); opt.step(); n += 1
    say("rank", r, n, loss.item(), digest(net.state_dict()))
train(net, 3)
dist.init_process_group("gloo"); ddp = DDP(net); train(ddp, 4); dist.barrier(); dist.destroy_process_group(); del ddp
train(net, 3)
store = dist.FileStore(os.path.abspath("../store-%s" % os.environ["FC_MARK"]), 2)
dist.init_process_group("gloo", store=store, rank=r, world_size=2); ddp = DDP(net); train(ddp, 4)
dist.destroy_process_group(); del ddp
train(net, 3)
