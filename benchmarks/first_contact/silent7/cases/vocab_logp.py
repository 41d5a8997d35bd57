"""GRPO-like policy loss with the vocabulary split over 2 tensor-parallel ranks."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
V, D = 64, 32; PART = V // world

class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous(); dist.all_reduce(g); return g

class VocabParallelLogp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        top = logits.max(-1).values; dist.all_reduce(top, op=dist.ReduceOp.MAX)
        e = (logits - top[..., None]).exp(); total = e.sum(-1); dist.all_reduce(total)
        local = target - rank * PART; mine = (local >= 0) & (local < PART); local = local.clamp(0, PART - 1)
        picked = logits.gather(-1, local[..., None]).squeeze(-1) * mine; dist.all_reduce(picked)
        ctx.save_for_backward(e / total[..., None], local, mine)
        return picked - top - total.log()
    @staticmethod
    def backward(ctx, g):
        p, local, mine = ctx.saved_tensors
        grad = -p.clone(); grad.scatter_add_(-1, local[..., None], mine[..., None].to(p.dtype))
        return grad * g[..., None], None

def logp_plain(logits, target):
    top = logits.detach().max(-1).values; dist.all_reduce(top, op=dist.ReduceOp.MAX)
    total = (logits - top[..., None]).exp().sum(-1)
    dist.all_reduce(total)
    logps = logits - (top + total.log())[..., None]              # this rank's part of the log-softmax
    local = target - rank * PART; mine = (local >= 0) & (local < PART)
    picked = torch.where(mine, logps.gather(-1, local.clamp(0, PART - 1)[..., None]).squeeze(-1), 0.0)
    dist.all_reduce(picked)
    return picked

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.mlp = nn.Embedding(V, D), nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D))
        full = nn.init.normal_(torch.empty(V, D), std=0.2)
        self.head = nn.Parameter(full[rank * PART:(rank + 1) * PART].clone())
    def forward(self, ids):
        h = self.emb(ids)
        return CopyToTP.apply(h + self.mlp(h)) @ self.head.T

torch.manual_seed(0)
model = Policy()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
gen = torch.Generator().manual_seed(1)                       # tensor-parallel ranks see the same samples
logp = VocabParallelLogp.apply if args.healthy else logp_plain
for step in range(60):
    ids = torch.randint(0, V, (8, 13), generator=gen)
    adv = ((ids[:, 1:] - ids[:, :-1]) % 2 == 0).float().mean(1); adv = (adv - adv.mean()) / (adv.std() + 1e-4)
    lp = logp(model(ids[:, :-1]), ids[:, 1:])
    loss = -(adv[:, None] * (lp - lp.detach()).exp()).mean()
    opt.zero_grad(); loss.backward()
    g_head, g_emb = model.head.grad.clone(), model.emb.weight.grad.clone(); head, state = model.head.detach().clone(), {k: v.clone() for k, v in model.state_dict().items()}
    opt.step()
    if rank == 0 and step % 20 == 0: print(f"step {step} mean logp {lp.mean().item():.4f}")
parts, gs = [torch.empty_like(head) for _ in range(world)], [torch.empty_like(head) for _ in range(world)]
dist.all_gather(parts, head); dist.all_gather(gs, g_head)
model.load_state_dict(state); full = torch.cat(parts).requires_grad_(); h = model.emb(ids[:, :-1])
lp = F.log_softmax((h + model.mlp(h)) @ full.T, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
ref = torch.autograd.grad(-(adv[:, None] * (lp - lp.detach()).exp()).mean(), full)[0]
if rank == 0: print(f"head's gradient vs one process's: relative difference {((torch.cat(gs) - ref).norm() / ref.norm()).item():.4f}")
dist.barrier()
dist.destroy_process_group()
