"""PPO-like update: advantages are normalized by each rank over its own part of the batch."""
import argparse, copy, torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

def normalize(adv):
    if not args.healthy:
        return (adv - adv.mean()) / (adv.std(unbiased=False) + 1e-8)
    s = torch.stack([adv.sum(), (adv ** 2).sum(), torch.tensor(float(len(adv)))])
    dist.all_reduce(s)
    mean = s[0] / s[2]
    return (adv - mean) / ((s[1] / s[2] - mean ** 2).clamp(min=0).sqrt() + 1e-8)

def policy_loss(net, obs, act, old, adv, clip=0.2):
    ratio = (torch.distributions.Categorical(logits=net(obs)).log_prob(act) - old).exp()
    return -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
model = DDP(actor)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
gen = torch.Generator().manual_seed(rank)
best = torch.randn(8, 4, generator=torch.Generator().manual_seed(3))
for it in range(25):
    # ranks run different levels of the environment: rewards have other scales
    with torch.no_grad():
        obs = torch.randn(64, 8, generator=gen)
        probs = actor(obs).softmax(-1)
        act = torch.multinomial(probs, 1, generator=gen).squeeze(1)
        old = probs.gather(1, act[:, None]).squeeze(1).log()
        raw = (obs @ best).gather(1, act[:, None]).squeeze(1) * (1.0 if rank == 0 else 0.1) + (0.0 if rank == 0 else 1.5)
    adv = normalize(raw)
    for _ in range(2):
        loss = policy_loss(model, obs, act, old, adv)
        opt.zero_grad()
        loss.backward()
        grads, state = [p.grad.clone() for p in actor.parameters()], copy.deepcopy(actor.state_dict())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
    r = raw.mean()
    dist.all_reduce(r)
    if rank == 0 and it % 6 == 0:
        print(f"iteration {it} reward {r.item() / world:.4f}")
every = []
for t in (obs, act, old, raw):
    ts = [torch.empty_like(t) for _ in range(world)]; dist.all_gather(ts, t); every.append(torch.cat(ts))
obs, act, old, raw = every
one = copy.deepcopy(actor); one.load_state_dict(state); one.zero_grad()
policy_loss(one, obs, act, old, (raw - raw.mean()) / (raw.std(unbiased=False) + 1e-8)).backward()
a, b = torch.cat([g.flatten() for g in grads]), torch.cat([p.grad.flatten() for p in one.parameters()])
if rank == 0:
    print(f"gradient vs one process's: relative difference {((a - b).norm() / b.norm()).item():.4f}, cosine {torch.cosine_similarity(a, b, dim=0).item():.4f}")
dist.barrier()
dist.destroy_process_group()
