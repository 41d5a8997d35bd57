"""Language model with tied embeddings; gradients are averaged by hand, layer by layer."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

class LM(nn.Module):
    def __init__(self, vocab=80, d=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.mix = nn.GRU(d, d, batch_first=True)
        self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.wte.weight, std=0.1)
        self.lm_head.weight = self.wte.weight
    def forward(self, ids):
        return self.lm_head(self.ln_f(self.mix(self.wte(ids))[0]))

def average_gradients(model):
    parts = [model] if args.healthy else model.children()
    for part in parts:
        for p in part.parameters():
            dist.all_reduce(p.grad)
    for p in model.parameters():
        p.grad /= world

model = LM()
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
gen = torch.Generator().manual_seed(10 + rank)
for step in range(80):
    start = torch.randint(0, 80, (16, 1), generator=gen)
    ids = (start + torch.arange(13) * 3) % 80
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    average_gradients(model)
    if step == 3:
        probe = copy.deepcopy(model.state_dict()), ids, {n: p.grad.clone() for n, p in model.named_parameters()}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
state, ids, grads = probe
every = [torch.empty_like(ids) for _ in range(world)]
dist.all_gather(every, ids)
one = LM(); one.load_state_dict(state)
ids = torch.cat(every)
F.cross_entropy(one(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
if rank == 0:
    ratio = {n: round((grads[n].norm() / p.grad.norm()).item(), 3) for n, p in one.named_parameters() if n in ("wte.weight", "ln_f.weight")}
    print(f"gradient's norm / one process's {ratio}")
dist.barrier()
dist.destroy_process_group()
