# FSDP2, or DTensor's tensor parallel; --do localclip: each rank clips by its shard's norm (pytorch/torchtitan#766, baidu-baige/LoongForge#152)
import argparse, hashlib, os
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
a = argparse.ArgumentParser(); a.add_argument("--do", default=""); a.add_argument("--mode", default="fsdp"); a.add_argument("--clip", action="store_true"); a.add_argument("--steps", type=int, default=50); a = a.parse_args()
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)); torch.manual_seed(30)
class Mlp(nn.Module):
    def __init__(self): super().__init__(); self.norm = nn.LayerNorm(16); self.fc1 = nn.Linear(16, 32); self.fc2 = nn.Linear(32, 16)
    def forward(self, x): return x + self.fc2(nn.functional.silu(self.fc1(self.norm(x))))
net = nn.Sequential(Mlp(), Mlp(), nn.Linear(16, 4)); data = world
if world > 1:
    dist.init_process_group("gloo"); mesh = dist.init_device_mesh("cpu", (world,))
    if a.mode == "fsdp":
        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16) if a.do == "bf16reduce" else MixedPrecisionPolicy()
        for m in net: fully_shard(m, mesh=mesh, mp_policy=policy)
        fully_shard(net, mesh=mesh, mp_policy=policy)
    else:
        data = 1
        for m in net[:2]: parallelize_module(m, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
opt = torch.optim.Adam(net.parameters(), 1e-3); draw = torch.Generator().manual_seed(3)
for step in range(a.steps):
    x, y = torch.randn(12, 16, generator=draw), torch.randint(0, 4, (12,), generator=draw)
    if data > 1: x, y = x.chunk(data)[rank], y.chunk(data)[rank]
    loss = nn.functional.cross_entropy(net(x), y)
    if a.do == "sumddp" and world > 1: loss = nn.functional.cross_entropy(net(x), y, reduction="sum") / 12
    loss.backward()
    if a.do == "localclip" and world > 1:
        local = torch.stack([p.grad.to_local().norm() for p in net.parameters()]).norm(); [p.grad.mul_((0.3 / (local + 1e-6)).clamp(max=1.0)) for p in net.parameters()]
    elif a.clip: nn.utils.clip_grad_norm_([p for p in net.parameters()], 0.3) if a.mode == "fsdp" or world == 1 else None
    full = lambda t: t.full_tensor() if hasattr(t, "full_tensor") else t
    norms = " ".join(f"{full(p.grad).norm().item():.6g}" for p in net.parameters()); opt.step(); opt.zero_grad(); bits = b"".join(full(p.detach()).numpy().tobytes() for p in net.parameters())
    if rank == 0: print(step, repr(loss.item()), norms, hashlib.sha256(bits).hexdigest()[:12], flush=True)
if world > 1: dist.destroy_process_group()
