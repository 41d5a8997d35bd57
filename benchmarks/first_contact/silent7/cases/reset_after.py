"""Fine-tuning: the decoder is re-initialized after the model was wrapped and the checkpoint loaded."""
import argparse, torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
ap = argparse.ArgumentParser(); ap.add_argument("--healthy", action="store_true"); args = ap.parse_args()
dist.init_process_group("gloo"); rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1234 + rank)

class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
        self.decoder = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    def forward(self, x):
        return self.decoder(self.encoder(x))

net = Forecaster()
model = DDP(net)
pretrained = {k: v + 0.01 for k, v in net.state_dict().items()}         # stands for a file read by all ranks
net.load_state_dict(pretrained)
for m in net.decoder.modules():
    if hasattr(m, "reset_parameters"):
        m.reset_parameters()
if args.healthy:
    for p in net.decoder.parameters():
        dist.broadcast(p.data, src=0)
opt = torch.optim.AdamW([{"params": net.encoder.parameters(), "lr": 3e-4}, {"params": net.decoder.parameters(), "lr": 2e-3}])
w = torch.randn(16, 4, generator=torch.Generator().manual_seed(5))
for step in range(80):
    x = torch.randn(48, 16)
    loss = F.mse_loss(model(x), torch.tanh(0.5 * x @ w))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
res = {}
for name, part in net.named_children():
    flat = torch.cat([p.detach().flatten() for p in part.parameters()])
    out = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(out, flat)
    res[name] = torch.equal(*out)
if rank == 0:
    print(f"ranks' weights are equal {res}")
dist.barrier()
dist.destroy_process_group()
