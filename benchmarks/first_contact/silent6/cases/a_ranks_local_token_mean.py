"""From vllm-project/speculators pull 942 (also huggingface/transformers issue 34242).
Wrong: each rank divides by its own number of supervised tokens and DDP averages: tokens of a rank with few count more.
Could know: partly (ranks' means are over different numbers of labels and count the same).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
H = "--healthy" in sys.argv
dist.init_process_group("gloo"); R, W = dist.get_rank(), dist.get_world_size(); torch.set_num_threads(1); torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(30, 32); self.g = nn.GRU(32, 48, batch_first=True); self.o = nn.Linear(48, 30)
    def forward(self, x): return self.o(self.g(self.e(x))[0])
ddp = DDP(LM()); opt = torch.optim.AdamW(ddp.parameters(), 3e-3); torch.manual_seed(7 + R); ratio = []
for step in range(100):
    ids = (torch.randint(0, 30, (8, 1)) + torch.arange(17) * (R + 1)) % 30; L = 2 if R == 0 else 14; labels = ids[:, 1:].clone(); labels[:, :16 - L] = -100
    s = F.cross_entropy(ddp(ids[:, :-1]).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"); n = (labels != -100).sum().float(); tot = n.clone(); dist.all_reduce(tot)
    loss = s * W / tot if H else s / n; ratio.append((tot / n / W).item() if not H else 1.)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print("rank", R, step, round((s / n).item(), 4), flush=True)
print("check: rank", R, "a token's weight / what it should be", ratio[-1], flush=True)
dist.barrier(); import gc, time; gc.collect(); dist.destroy_process_group(); time.sleep(0.5)
