#: what: a GAN split over ranks: the generator on rank 0, the discriminator on rank 1, samples and their gradients sent back and forth
#: source: memory
#: run: TORCHRUN --nproc-per-node 2 PY case.py
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo"); rank = dist.get_rank(); LOG = open(f"rank{rank}.txt", "a")
import builtins
def print(*a, **k): builtins.print(*a, file=LOG, flush=True)
seed(rank)
if rank == 0:
    G = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2)); watch(G); opt = torch.optim.Adam(G.parameters(), 1e-2, betas=(0.5, 0.9))
    for s in range(15): f = G(torch.randn(8, 3)); dist.send(f.detach().contiguous(), 1); g = torch.empty_like(f); dist.recv(g, 1); opt.zero_grad(); f.backward(g); opt.step(); print(s, sha(f, g))
    show(G, opt)
else:
    D = nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 16)), nn.LeakyReLU(0.2), nn.Linear(16, 1)); watch(D); opt = torch.optim.Adam(D.parameters(), 1e-2, betas=(0.5, 0.9))
    for s in range(15):
        f = torch.empty(8, 2); dist.recv(f, 0); real = torch.randn(8, 2) + 2; l = F.softplus(D(f)).mean() + F.softplus(-D(real)).mean(); opt.zero_grad(); l.backward(); opt.step()
        f.requires_grad_(); g, = torch.autograd.grad(F.softplus(-D(f)).mean(), f); dist.send(g, 0); print(s, l.item())
    show(D, opt)
dist.destroy_process_group()
