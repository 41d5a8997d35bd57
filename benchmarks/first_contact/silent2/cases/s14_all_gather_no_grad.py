"""CLIP-like training on 2 ranks (DDP): features of all ranks by dist.all_gather, which has no gradient: also the rank's own slice has none, so only the temperature... of the gathered side learns nothing.
Source: https://github.com/3dlg-hcvc/DuoduoCLIP/issues/10 (also kohjingyu/fromage issue 33)
Truth: the image tower (whose features are used only as gathered ones) does not move except by weight decay 0.
Could a tool know: yes. An encoder's parameters are in the optimizer and used in the forward, and get no gradient.
ranks: 2
"""
import sys, torch, torch.nn.functional as F, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); dist.init_process_group("gloo"); rank = dist.get_rank(); torch.manual_seed(0)

class Clip(nn.Module):
    def __init__(self):
        super().__init__(); self.image = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 16)); self.text = nn.Sequential(nn.EmbeddingBag(20, 32), nn.Linear(32, 16)); self.scale = nn.Parameter(torch.tensor(2.0))
    def forward(self, x, t): return F.normalize(self.image(x), dim=1), F.normalize(self.text(t), dim=1), self.scale.exp()

net = Clip(); first = net.image[0].weight.detach().clone(); ddp = DDP(net, find_unused_parameters=True)
opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.0)
w = torch.randn(20, 24); g = torch.Generator().manual_seed(rank + 1)
for step in range(100):
    t = torch.randint(0, 20, (16, 4), generator=g); x = w[t].mean(1) + 0.1 * torch.randn(16, 24, generator=g)
    i, e, s = ddp(x, t)
    every = [torch.zeros_like(i) for _ in range(2)]; dist.all_gather(every, i.detach().contiguous() if HEALTHY else i.contiguous())
    if HEALTHY: every[rank] = i
    logits = s * e @ torch.cat(every).T; y = torch.arange(16) + 16 * rank
    loss = F.cross_entropy(logits, y); opt.zero_grad(); loss.backward(); opt.step()
if rank == 0: print(f"TRUTH image tower moved {(net.image[0].weight - first).abs().max():.4f} loss {loss:.3f}")
dist.destroy_process_group()
