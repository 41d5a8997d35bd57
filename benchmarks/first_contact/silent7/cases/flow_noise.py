"""Flow matching: noise and times come from the default generator, seeded with one number on all ranks."""
import argparse, random, numpy as np, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

def set_seed(seed):
    random.seed(seed); np.random.seed(seed); torch.manual_seed(seed)

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.obs, self.net = nn.Linear(6, 32), nn.Sequential(nn.Linear(32 + 4 + 1, 64), nn.SiLU(), nn.Linear(64, 4))
    def forward(self, obs, actions):
        noise = torch.randn(actions.shape)
        time = torch.distributions.Beta(1.5, 1.0).sample((len(actions), 1))
        self.last = noise
        x_t = time * noise + (1 - time) * actions
        v = self.net(torch.cat([self.obs(obs), x_t, time], -1))
        return F.mse_loss(v, noise - actions)

set_seed(42 + rank if args.healthy else 42)
g = torch.Generator().manual_seed(0)
obs = torch.randn(1024, 6, generator=g)
data = TensorDataset(obs, torch.tanh(obs @ torch.randn(6, 4, generator=g)))
sampler = DistributedSampler(data, seed=42)
loader = DataLoader(data, batch_size=16, sampler=sampler)
policy = Policy()
model = DDP(policy)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
step = 0
for epoch in range(3):
    sampler.set_epoch(epoch)
    for o, a in loader:
        loss = model(o, a)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if rank == 0 and step % 24 == 0:
            print(f"step {step} loss {loss.item():.4f}")
out = [torch.empty_like(policy.last) for _ in range(world)]
dist.all_gather(out, policy.last); outs = [torch.empty_like(o) for _ in range(world)]; dist.all_gather(outs, o)
if rank == 0:
    print(f"ranks' last noise is the same {torch.equal(*out)} (their samples are the same {torch.equal(*outs)})")
dist.barrier()
dist.destroy_process_group()
