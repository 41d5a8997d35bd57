# a small language model with tied weights and padded labels: one process, accumulation, DDP, or ranks that reduce by hand; --do NAME plants a fault
import argparse, contextlib, hashlib, os
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
a = argparse.ArgumentParser(); a.add_argument("--do", default=""); a.add_argument("--dp", default="ddp"); a.add_argument("--micro", type=int, default=1); a.add_argument("--steps", type=int, default=50)
for flag in ("clip", "recompute", "compile", "bf16", "adam"): a.add_argument("--" + flag, action="store_true")
a = a.parse_args(); do = a.do
world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1: dist.init_process_group("gloo")
torch.manual_seed(21 + (rank if do == "seed" else 0))
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.emb = nn.Embedding(30, 16); self.norm1 = nn.LayerNorm(16); self.up = nn.Linear(16, 32); self.norm2 = nn.LayerNorm(32); self.down = nn.Linear(32, 16); self.bias = nn.Parameter(torch.zeros(30))
    def block(self, h): return self.down(self.norm2(self.up(self.norm1(h)).tanh()))
    def forward(self, t):
        h = self.emb(t)
        h = h + (torch.utils.checkpoint.checkpoint(self.block, h, use_reentrant=False) if a.recompute else self.block(h))
        return h @ self.emb.weight.T + self.bias
net = model = Net()
if a.compile: model = torch.compile(net, backend="aot_eager")
if world > 1 and a.dp == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
    if do == "bf16hook":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
        model.register_comm_hook(None, bf16_compress_hook)
opt = torch.optim.AdamW(net.parameters(), 1e-2) if a.adam else torch.optim.SGD(net.parameters(), 0.1 * (world if do == "lr" else 1), momentum=0.9)
draw = torch.Generator().manual_seed(5 + (rank if do == "dataseed" else 0))
for step in range(a.steps):
    x = torch.randint(0, 30, (16, 9), generator=draw); y = x.roll(-1, 1); y[torch.arange(9)[None] >= torch.randint(3, 9, (16, 1), generator=draw)] = -100; n = (y != -100).sum()
    if world > 1 and do != "sameshard": x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    elif world > 1: x, y = x[:8], y[:8]
    total = 0.0
    for i, (t, l) in enumerate(zip(x.chunk(a.micro), y.chunk(a.micro))):
        last = i == a.micro - 1
        with model.no_sync() if hasattr(model, "no_sync") and (not last or do == "nosync") else contextlib.nullcontext(), torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
            out = (net if do == "unwrapped" else model)(t).float().flatten(0, 1)
            if do in ("means", "undivided"): loss = F.cross_entropy(out, l.flatten()) / (1 if do == "undivided" else a.micro)
            else: loss = F.cross_entropy(out, l.flatten(), reduction="sum") / n * (1 if do == "noworld" else world)
        loss.backward(); total += loss.item()
        if do == "zeroed" and not last: opt.zero_grad()
    if world > 1 and a.dp == "hand":
        if do == "cliplocal": nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        for name, p in net.named_parameters():
            if do == "skipnorms" and "norm" in name or do == "skipbias" and name == "bias": continue
            if do == "bf16": g = p.grad.bfloat16(); dist.all_reduce(g); p.grad.copy_(g)
            else: dist.all_reduce(p.grad)
            if do == "tiedtwice" and name == "emb.weight": dist.all_reduce(p.grad)
            if do != "summed": p.grad /= world
    if a.clip and do != "cliplocal": nn.utils.clip_grad_norm_(net.parameters(), 0.3)
    norms = " ".join(f"{p.grad.norm().item():.6g}" for p in net.parameters())
    opt.step(); opt.zero_grad()
    if rank == 0: print(step, repr(total), norms, hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:12], flush=True)
if world > 1: dist.destroy_process_group()
