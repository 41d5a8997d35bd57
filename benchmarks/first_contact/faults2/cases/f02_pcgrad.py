"""WeiChengTseng/Pytorch-PCGrad#7: projection divides by g_j.norm()**2 which is zero when a task has no sample
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class MTL(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.grade, self.idh = nn.Linear(32, 3), nn.Linear(32, 1)
    def forward(self, x):
        h = self.body(x)
        return self.grade(h), self.idh(h).squeeze(-1)
def project(gi, gj):
    d = gj.norm() ** 2 + (1e-12 if CURED else 0.0)
    return gi - (gi * gj).sum() * gj / d  # FAULT
model = MTL(); opt = torch.optim.Adam(model.parameters(), 1e-3)
shared = list(model.body.parameters())
for step in range(6):
    x, yg, yi = torch.randn(8, 16), torch.randint(0, 3, (8,)), torch.randint(0, 2, (8,)).float()
    known = torch.zeros(8) if step == 3 else torch.ones(8)
    g, i = model(x)
    l1 = F.cross_entropy(g, yg)
    l2 = (F.binary_cross_entropy_with_logits(i, yi, reduction="none") * known).mean()
    opt.zero_grad()
    g1 = torch.autograd.grad(l1, shared, retain_graph=True)
    g2 = torch.autograd.grad(l2, shared, retain_graph=True)
    (l1 + l2).backward()
    for p, a, b in zip(shared, g1, g2):
        p.grad = project(a, b) + b
    opt.step()
    print(step, (l1 + l2).item())
done((l1 + l2).detach(), model)
