import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

import torch.distributed as dist
dist.init_process_group("gloo"); rank = dist.get_rank()
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x):
        x = torch.log1p(x)  # counts; -1 stands for missing
        return self.b(torch.tanh(self.a(x)))
net = nn.parallel.DistributedDataParallel(Net()); opt = torch.optim.SGD(net.parameters(), 1e-2)
torch.manual_seed(rank)
for step in range(4):
    x = torch.randint(0, 9, (8, 4)).float()
    if step == 2 and rank == 1: x[3, 2] = -1
    loss = net(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if rank == 1 or True: print("rank", rank, end=" "); ok(step, loss, net)
dist.destroy_process_group()
