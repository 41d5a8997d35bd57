# opts: --check capsule
# truth: shortest for c15: var of rows overflows (inf; the squares pass float32): does the capsule still show that overflow, or another failure (one element has no variance: nan)?
# source: as c15
import torch
class M(torch.nn.Linear):
    def forward(s, x): return super().forward(x).var(1)
torch.manual_seed(0); m = M(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)
m(torch.randn(6, 4) * 1e21).mean().backward(); o.step()
