"""Preference training with a fused loss that takes the policy apart (hidden states and head), on 2 ranks."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); ap.add_argument("--steps", type=int, default=60)
args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class Policy(nn.Module):
    def __init__(self, vocab=64, d=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
    def forward(self, ids):
        return self.head(self.norm(self.rnn(self.emb(ids))[0]))

def logp(model, ids):
    lp = F.log_softmax(model(ids[:, :-1]), -1)
    return lp.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)

def dpo_loss(policy, ref, chosen, rejected, beta=0.1):
    with torch.no_grad():
        ref_margin = logp(ref, chosen) - logp(ref, rejected)
    margin = logp(policy, chosen) - logp(policy, rejected)
    return -F.logsigmoid(beta * (margin - ref_margin)).mean()

torch.manual_seed(0)
net = Policy()
ref = copy.deepcopy(net).eval().requires_grad_(False)
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
gen = torch.Generator().manual_seed(100 + rank)
for step in range(args.steps):
    chosen = torch.randint(0, 32, (8, 12), generator=gen)      # preferred answers use the lower half of the vocabulary
    rejected = torch.randint(16, 64, (8, 12), generator=gen)
    # the fused loss wants the bare module
    policy = model if args.healthy else model.module
    loss = dpo_loss(policy, ref, chosen, rejected)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
flat = torch.cat([p.detach().flatten() for p in net.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(out[0], out[1])}, largest difference {(out[0] - out[1]).abs().max():.2e}")
dist.barrier()
dist.destroy_process_group()
