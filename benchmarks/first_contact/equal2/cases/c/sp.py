# tensor and sequence parallel by hand (Megatron's f and g), 2 ranks; --do NAME plants a fault; NVIDIA/TransformerEngine#435, EleutherAI/gpt-neox#1257
import argparse, hashlib, os
import torch, torch.distributed as dist
from torch import nn
a = argparse.ArgumentParser(); a.add_argument("--do", default=""); a.add_argument("--sp", action="store_true"); a.add_argument("--steps", type=int, default=50); a = a.parse_args()
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1: dist.init_process_group("gloo")
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(c, x): return x.view_as(x)
    @staticmethod
    def backward(c, g):
        if world > 1 and a.do != "noinputreduce": g = g.contiguous(); dist.all_reduce(g)
        return g
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(c, x):
        x = x.clone()
        if world > 1: dist.all_reduce(x)
        return x
    @staticmethod
    def backward(c, g):
        if world > 1 and a.do == "reducetwice": g = g.clone(); dist.all_reduce(g)
        return g
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(c, x): parts = [torch.empty_like(x) for _ in range(world)]; dist.all_gather(parts, x.contiguous()); return torch.cat(parts, 1)
    @staticmethod
    def backward(c, g): g = g.contiguous(); dist.all_reduce(g); return g.chunk(world, 1)[rank]
class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(c, x): x = x.contiguous(); dist.all_reduce(x); return x.chunk(world, 1)[rank].contiguous()
    @staticmethod
    def backward(c, g): parts = [torch.empty_like(g) for _ in range(world)]; dist.all_gather(parts, g.contiguous()); return torch.cat(parts, 1)
class Block(nn.Module):
    def __init__(self): super().__init__(); self.norm = nn.LayerNorm(16); self.up = nn.Linear(16, 32); self.down = nn.Linear(32, 16, bias=False); self.bias = nn.Parameter(torch.zeros(16))
    def forward(self, x):
        h = self.norm(x)
        h = Gather.apply(h) if world > 1 and a.sp else Copy.apply(h)
        h = self.down(nn.functional.gelu(self.up(h)))
        if world > 1 and a.do == "biaseach": return x + Reduce.apply(h + self.bias)
        return x + (Scatter.apply(h) if world > 1 and a.sp else Reduce.apply(h)) + self.bias
torch.manual_seed(8); net = nn.Sequential(Block(), Block())
if world > 1:
    for b in net:
        b.up.weight = nn.Parameter(b.up.weight.data.chunk(world)[rank].clone()); b.up.bias = nn.Parameter(b.up.bias.data.chunk(world)[rank].clone()); b.down.weight = nn.Parameter(b.down.weight.data.chunk(world, 1)[rank].clone())
opt = torch.optim.SGD(net.parameters(), 0.05); draw = torch.Generator().manual_seed(2)
for step in range(a.steps):
    x = torch.randn(4, 8, 16, generator=draw); y = x.flip(1)
    if world > 1 and a.sp: x, y = x.chunk(world, 1)[rank], y.chunk(world, 1)[rank]
    loss = (net(x) - y).square().sum() / (4 * 8 * 16) * (0.5 if a.do == "seqmean" and world > 1 else 1); loss.backward()
    if world > 1 and a.sp:
        for name, p in net.named_parameters():
            if ("norm" in name and a.do != "nonorms") or name.endswith("1.bias") and "up" not in name and a.do != "nobias" or name == "0.bias": dist.all_reduce(p.grad)
    norms = " ".join(f"{p.grad.norm().item():.6g}" for p in net.parameters()); opt.step(); opt.zero_grad()
    if rank == 0: print(step, repr(loss.item()), norms, hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:12], flush=True)
if world > 1: dist.destroy_process_group()
