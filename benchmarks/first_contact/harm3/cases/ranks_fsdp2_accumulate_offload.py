"""FSDP2: gradient accumulation without sync, reshard_after_forward off for the root, CPU offload policy, tied weights, a second fully_shard of another model in mid-run, forward prefetch set by hand, register_fsdp_forward_method."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
r = dist.get_rank()
mesh = init_device_mesh("cpu", (2,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.ls = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.o = nn.Linear(8, 20, bias=False)
        self.o.weight = self.e.weight

    def forward(self, i):
        x = self.e(i)
        for l in self.ls:
            x = x + l(x).tanh()
        return self.o(x)

    def encode(self, i):
        return self.e(i).sum()


torch.manual_seed(1)
m = Net()
for l in m.ls:
    fully_shard(l, mesh=mesh, reshard_after_forward=True)
fully_shard(m, mesh=mesh, reshard_after_forward=False)
register_fsdp_forward_method(m, "encode")
m.ls[0].set_modules_to_forward_prefetch([m.ls[1]])
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
out = []
for s in range(6):
    i = torch.randint(0, 20, (3, 4), generator=torch.Generator().manual_seed(10 * s + r))
    last = s % 3 == 2
    m.set_requires_gradient_sync(last)
    l = F.cross_entropy(m(i).flatten(0, 1), i.flatten()) + 0.01 * m.encode(i)
    l.backward()
    out.append(l.item().hex())
    if last:
        opt.step()
        opt.zero_grad()
out.append(H([p.to_local() for p in m.parameters()], [p.full_tensor() for p in m.parameters()]))
n = net(2)
fully_shard(n, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
W(n)
o = torch.optim.SGD(n.parameters(), 0.05)
for s in range(3):
    x, t = batch(10 * s + r)
    o.zero_grad()
    F.mse_loss(n(x), t).backward()
    o.step()
n.unshard()
n.reshard()
out.append(H([p.full_tensor() for p in n.parameters()]))
with open(f"r{r}.txt", "w") as f:
    print(out, file=f)
dist.destroy_process_group()
