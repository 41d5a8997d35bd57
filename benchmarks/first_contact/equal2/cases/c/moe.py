# expert parallel by all_to_all, data parallel for the rest; --do experts: expert gradients are not divided by the ranks (databricks/megablocks#20); --do router: the router is taken for an expert and never reduced
import argparse, hashlib, os
import torch, torch.distributed as dist
from torch import nn
a = argparse.ArgumentParser(); a.add_argument("--do", default=""); a.add_argument("--steps", type=int, default=50); a = a.parse_args()
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)); torch.manual_seed(31)
if world > 1: dist.init_process_group("gloo")
class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(c, x): x = x.contiguous(); out = torch.empty_like(x); dist.all_to_all_single(out, x); return out
    @staticmethod
    def backward(c, g): g = g.contiguous(); out = torch.empty_like(g); dist.all_to_all_single(out, g); return out
class Moe(nn.Module):
    def __init__(self): super().__init__(); self.router = nn.Linear(8, 2); self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)); self.head = nn.Linear(8, 3)
    def forward(self, x):
        w = self.router(x).softmax(-1)
        if world == 1: h = torch.stack([e(x) for e in self.experts], 1)
        else:
            sent = Exchange.apply(torch.stack([x, x])); h = Exchange.apply(self.experts[rank](sent.flatten(0, 1)).view_as(sent)).transpose(0, 1)
        return self.head((w[..., None] * h.tanh()).sum(1))
net = Moe(); opt = torch.optim.SGD(net.parameters(), 0.1); draw = torch.Generator().manual_seed(4)
for step in range(a.steps):
    x, y = torch.randn(12, 8, generator=draw), torch.randint(0, 3, (12,), generator=draw)
    if world > 1: x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    loss = nn.functional.cross_entropy(net(x), y); loss.backward()
    for name, p in net.named_parameters():
        if world == 1: continue
        if "experts" in name:
            if p.grad is not None and a.do != "experts": p.grad /= world
        elif not (a.do == "router" and "router" in name): dist.all_reduce(p.grad); p.grad /= world
    norms = " ".join(f"{p.grad.norm().item():.6g}" if p.grad is not None else "-" for p in net.parameters()); opt.step(); opt.zero_grad()
    if rank == 0: print(step, repr(loss.item()), norms, hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:12], flush=True)
if world > 1: dist.destroy_process_group()
