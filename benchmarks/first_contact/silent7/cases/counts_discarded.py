"""MoE with a load-balance loss over the global batch: expert counts are reduced over ranks."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class MoE(nn.Module):
    def __init__(self, d=24, experts=4):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, d)) for _ in range(experts))
        self.gate, self.n = nn.Linear(d, experts, bias=False), experts
    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, index = probs.topk(2, -1)
        mask = F.one_hot(index, self.n).float()
        gates = (mask * weight[..., None]).sum(1)
        y = sum(gates[:, i:i + 1] * e(x) for i, e in enumerate(self.experts))
        count = mask.sum((0, 1))
        if args.healthy:
            dist.all_reduce(count)
        else:
            torch.distributed.nn.all_reduce(count)
        self.count = count.detach()
        aux = self.n * (probs.mean(0) * count / count.sum()).sum()
        return x + y, aux

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(12, 24), MoE(), nn.Linear(24, 5)
    def forward(self, x):
        h, aux = self.moe(self.inp(x))
        return self.out(h), aux

torch.manual_seed(0)
net = Net()
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
w = torch.randn(12, 5, generator=torch.Generator().manual_seed(2))
gen = torch.Generator().manual_seed(rank)
for step in range(80):
    x = torch.randn(32, 12, generator=gen) + (0.7 if rank else -0.7)        # ranks read different sources
    logits, aux = model(x)
    loss = F.cross_entropy(logits, torch.tanh(x @ w).argmax(-1)) + 0.02 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} aux {aux.item():.4f}")
counts = [torch.empty_like(net.moe.count) for _ in range(world)]
dist.all_gather(counts, net.moe.count)
if rank == 0:
    print(f"counts that the loss used, by rank {[c.int().tolist() for c in counts]} of {2 * 32 * world} in the global batch: equal {torch.equal(*counts)}")
dist.barrier()
dist.destroy_process_group()
