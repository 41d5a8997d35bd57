# ranks: 3
# opts: --check rank:at=2
# modes: wh
# truth: healthy; shortest for r11: a torch.Generator in an attribute of a module, seeded by rank (own noise per rank)
# source: as r11
import torch, torch.distributed as D
D.init_process_group("gloo"); r = D.get_rank()
class N(torch.nn.Module):
    def __init__(s): super().__init__(); s.g = torch.Generator().manual_seed(r); s.l = torch.nn.Linear(4, 4)
    def forward(s, x): return s.l(x + torch.randn(x.shape, generator=s.g))
torch.manual_seed(0); m = torch.nn.parallel.DistributedDataParallel(N()); o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(30): m(torch.ones(2, 4)).sum().backward(); o.step(); o.zero_grad()
D.destroy_process_group()
