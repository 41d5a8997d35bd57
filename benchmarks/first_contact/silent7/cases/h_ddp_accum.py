"""Healthy: DDP with gradient accumulation, no_sync, warmup and cosine, per-epoch evaluation and a checkpoint; 240 steps."""
import contextlib, math, os, tempfile, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(0)
ids = (torch.randint(0, 60, (2560, 1), generator=g) + torch.arange(17) * torch.randint(1, 5, (2560, 1), generator=g)) % 60
noise = torch.rand(ids.shape, generator=g) < 0.05
ids = torch.where(noise, torch.randint(0, 60, ids.shape, generator=g), ids)
train_set, val_set = TensorDataset(ids[:2048]), TensorDataset(ids[2048:])
sampler = DistributedSampler(train_set, seed=3)
train = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
val = DataLoader(val_set, batch_size=64, sampler=DistributedSampler(val_set, shuffle=False))

class Block(nn.Module):
    def __init__(self, d=48, heads=4):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp, self.drop = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)), nn.Dropout(0.1)
    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
        x = x + self.drop(self.proj(a))
        return x + self.drop(self.mlp(self.n2(x)))

class GPT(nn.Module):
    def __init__(self, vocab=60, d=48):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(16, d)
        self.blocks, self.norm, self.head = nn.Sequential(Block(d), Block(d)), nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=0.05)
    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tok(x) + self.pos.weight[:x.shape[1]])))

torch.manual_seed(0)
net = GPT()
model = DDP(net)
torch.manual_seed(10 + rank)
decay = [p for p in net.parameters() if p.dim() > 1]; rest = [p for p in net.parameters() if p.dim() == 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95))
accum, total = 4, 240
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 20) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1, s / total)))))
steps, epoch = 0, 0
while steps < total:
    sampler.set_epoch(epoch); model.train()
    for i, (b,) in enumerate(train):
        last = (i + 1) % accum == 0
        with contextlib.nullcontext() if last else model.no_sync():
            loss = F.cross_entropy(model(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten())
            (loss / accum).backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step(); sched.step(); opt.zero_grad(set_to_none=True); steps += 1
            if steps == total: break
    model.eval(); s = torch.zeros(2)
    with torch.no_grad():
        for b, in val:
            s += torch.tensor([F.cross_entropy(net(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten(), reduction="sum"), b[:, 1:].numel()])
    dist.all_reduce(s)
    if rank == 0:
        torch.save({"model": net.state_dict(), "opt": opt.state_dict()}, os.path.join(tempfile.gettempdir(), "h_ddp_accum.pt"))
        print(f"epoch {epoch} step {steps} loss {loss.item():.4f} val {(s[0] / s[1]).item():.4f}")
    dist.barrier(); epoch += 1
flat = torch.cat([p.detach().flatten() for p in net.parameters()]); out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0: print(f"{steps} steps, ranks' weights are equal {torch.equal(*out)}, val loss {(s[0] / s[1]).item():.4f}")
dist.barrier()
dist.destroy_process_group()
