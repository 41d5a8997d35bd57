# fault in a backward on rank 0 of DDP: the norm of a row of zeros written as a square root (0 * inf); forward and loss finite; the reduction spreads it
from fcutil import *
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.inp = nn.Linear(8, 16, bias=False); self.out = nn.Linear(16, 4)
    def forward(self, x):
        h = self.inp(x)
        n = torch.sqrt(h.square().sum(1, keepdim=True)) # FAULT
        return self.out(h / (n + 1e-6))
net = Net(); ddp = DDP(net); opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(8):
    x, y = data(step, r)
    if r == 0 and step == 4: x[2] = 0
    opt.zero_grad(); loss = F.mse_loss(ddp(x), y); loss.backward(); opt.step(); say("rank", r, step, loss.item())
dist.destroy_process_group()
