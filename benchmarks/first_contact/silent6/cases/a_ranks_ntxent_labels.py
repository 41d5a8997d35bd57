"""From lightly-ai/lightly pull 1177 (issue 1176).
Wrong: without gathering, the labels are shifted by rank * batch_size all the same: rank 1 pulls together samples that are no pair.
Could know: partly (labels differ between ranks by a constant; else it is only a meaning).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)); ddp = DDP(net); opt = torch.optim.Adam(net.parameters(), 2e-3); torch.manual_seed(1 + R); B = 16; losses = []
for step in range(120):
    x = torch.randn(B, 16); o0, o1 = F.normalize(ddp(torch.cat([x + .3 * torch.randn_like(x), x + .3 * torch.randn_like(x)])), dim=1).chunk(2)
    eye = torch.eye(B, dtype=torch.bool); l00 = (o0 @ o0.t() / .2)[~eye].view(B, -1); l11 = (o1 @ o1.t() / .2)[~eye].view(B, -1); l01 = o0 @ o1.t() / .2
    logits = torch.cat([torch.cat([l01, l00], 1), torch.cat([l01.t(), l11], 1)]); y = torch.arange(B) + (0 if H else R * (B - 1)); y = y.repeat(2)
    loss = F.cross_entropy(logits, y); opt.zero_grad(); loss.backward(); opt.step(); losses.append(loss.item())
    if step % 20 == 0 and R == 0: print(step, round(loss.item(), 4), flush=True)
print("check: rank", R, "loss at the end", sum(losses[-10:]) / 10, flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
