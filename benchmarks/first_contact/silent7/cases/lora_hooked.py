"""LoRA by replaced forwards: the adapter network is wrapped by DDP, the frozen base model calls its layers."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()

class LoRA(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.down, self.up = nn.Linear(base.in_features, r, bias=False), nn.Linear(r, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.base_forward = base.forward
    def apply_to(self, base):
        base.forward = self.forward
    def forward(self, x):
        return self.base_forward(x) + self.up(self.down(x))

class Network(nn.Module):
    def __init__(self, unet):
        super().__init__()
        layers = [m for m in unet.modules() if isinstance(m, nn.Linear)]
        self.loras = nn.ModuleList(LoRA(m) for m in layers)
        for lora, m in zip(self.loras, layers):
            lora.apply_to(m)

torch.manual_seed(0)
unet = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 16)).requires_grad_(False)
network = Network(unet)
network = DDP(network)
opt = torch.optim.AdamW(network.parameters(), lr=2e-3)
style = torch.randn(16, generator=torch.Generator().manual_seed(4))
gen = torch.Generator().manual_seed(7 + rank)
for step in range(80):
    latents = style + 0.3 * torch.randn(16, 16, generator=gen)
    noise = torch.randn(16, 16, generator=gen)
    t = torch.rand(16, 1, generator=gen)
    pred = unet((1 - t) * latents + t * noise)
    loss = F.mse_loss(pred, noise - latents)
    opt.zero_grad()
    loss.backward()
    if args.healthy:
        for p in network.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
flat = torch.cat([p.detach().flatten() for p in network.parameters()])
out = [torch.empty_like(flat) for _ in range(world)]
dist.all_gather(out, flat)
if rank == 0:
    print(f"ranks' adapters are equal {torch.equal(out[0], out[1])}, largest difference {(out[0] - out[1]).abs().max():.2e}")
dist.barrier()
dist.destroy_process_group()
