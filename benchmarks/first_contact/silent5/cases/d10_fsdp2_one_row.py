import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
rank = dist.get_rank()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(16, 40, bias=False)
    def forward(self, t, scale):
        x = self.emb(t)
        for l in self.layers: x = x + l(x)
        return self.head(x), (self.emb(t[:, :1]).flatten() * scale).sum()
net = Net()
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,))
for l in net.layers: fully_shard(l, mesh=mesh)
fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
torch.manual_seed(rank)
for step in range(30):
    t = torch.randint(40, (4, 9))
    t[:, 0] = 3  # this row lies on rank 0 alone
    scale = float("inf") if (step, rank) in ((4, 1), (17, 0)) else 0.01
    out, extra = net(t[:, :-1], scale)
    loss = F.cross_entropy(out.flatten(0, 1), t[:, 1:].flatten()) + extra
    opt.zero_grad()
    loss.backward()
    if DROP:
        b = torch.tensor(float(any(not p.grad.to_local().isfinite().all() for p in net.parameters())))
        dist.all_reduce(b)
        if b == 0: opt.step()
    else:
        opt.step()
h = hashlib.sha256()
for k, v in net.state_dict().items():
    h.update(k.encode()); h.update(v.full_tensor().numpy().tobytes())
print("BITS", rank, h.hexdigest(), flush=True)
dist.destroy_process_group()
