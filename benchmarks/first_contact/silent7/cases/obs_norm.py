"""Actor-critic on 2 ranks; observations are normalized by running statistics, gradients are averaged by hand."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class RunningMeanStd(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n)); self.register_buffer("var", torch.ones(n)); self.register_buffer("count", torch.ones(()))
    @torch.no_grad()
    def update(self, x):
        s = torch.cat([x.sum(0), (x * x).sum(0), x.new_tensor([len(x)])])
        if args.healthy:
            dist.all_reduce(s)
        n = s[-1]; (m, sq) = (s[:-1] / n).chunk(2); v = sq - m * m
        d, total = m - self.mean, self.count + n
        self.var.copy_((self.var * self.count + v * n + d * d * self.count * n / total) / total)
        self.mean += d * n / total
        self.count.copy_(total)
    def forward(self, x):
        if self.training:
            self.update(x)
        return ((x - self.mean) / (self.var + 1e-5).sqrt()).clamp(-5, 5)

class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.body = RunningMeanStd(8), nn.Sequential(nn.Linear(8, 64), nn.ELU())
        self.pi, self.v = nn.Linear(64, 3), nn.Linear(64, 1)
    def forward(self, obs):
        h = self.body(self.norm(obs))
        return self.pi(h), self.v(h).squeeze(-1)

torch.manual_seed(0)
model = ActorCritic()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(100 + rank)
best = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
for it in range(80):
    z = torch.randn(64, 8)
    obs = z * (2.0 if rank else 1.0) + (1.5 if rank else 0.0)          # ranks simulate other terrains
    logits, value = model(obs)
    pi = torch.distributions.Categorical(logits=logits)
    act = pi.sample()
    reward = (torch.tanh(z @ best)).gather(1, act[:, None]).squeeze(1)
    loss = -((reward - value.detach()) * pi.log_prob(act)).mean() + 0.5 * F.mse_loss(value, reward) - 0.01 * pi.entropy().mean()
    opt.zero_grad()
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    i = 0
    for p in model.parameters():
        p.grad.copy_(flat[i:i + p.numel()].view_as(p) / world); i += p.numel()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if rank == 0 and it % 20 == 0:
        print(f"iteration {it} reward {reward.mean().item():.4f}")
means = [torch.empty_like(model.norm.mean) for _ in range(world)]
dist.all_gather(means, model.norm.mean)
w = torch.cat([p.detach().flatten() for p in model.parameters()]); ws = [torch.empty_like(w) for _ in range(world)]
dist.all_gather(ws, w)
if rank == 0:
    print(f"ranks' weights are equal {torch.equal(*ws)}, their observation statistics are equal {torch.equal(*means)} (means of the first {[round(m[0].item(), 3) for m in means]})")
dist.barrier()
dist.destroy_process_group()
