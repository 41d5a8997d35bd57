"""From modelscope/ms-swift pull 10081.
Wrong: each rank computes the same global InfoNCE loss, with a graph for its own embeddings only; DDP averages, so the gradient is halved.
Could know: partly (the loss has the same bits on all ranks though their data differ, and gradients are averaged).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
enc = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 16)); ddp = DDP(enc); opt = torch.optim.SGD(enc.parameters(), .2); torch.manual_seed(10 + R)
def gather(x): out = [torch.zeros_like(x) for _ in range(W)]; dist.all_gather(out, x.detach()); out[R] = x; return torch.cat(out)
for step in range(120):
    x = torch.randn(16, 12); q, p = F.normalize(ddp(torch.cat([x, x + .4 * torch.randn_like(x)])), dim=1).chunk(2); q, p = gather(q), gather(p)
    loss = F.cross_entropy(q @ p.t() / .1, torch.arange(len(q)))
    if H: loss = loss * W - (loss * (W - 1)).detach()
    opt.zero_grad(); loss.backward()
    if step == 0: print("check: rank", R, "loss", loss.item(), "gradient norm", sum(w.grad.norm() ** 2 for w in enc.parameters()).sqrt().item(), flush=True)
    opt.step()
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
