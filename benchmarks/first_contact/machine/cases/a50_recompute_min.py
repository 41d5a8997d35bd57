# opts: --check again:every=1
# truth: shortest for a26: bit 23 of one element of tanh's result, poked in the recomputation alone, step 3; op aten.tanh, line 7
# source: as a26
import flips as C, torch
N = 0
def f(x):
    global N
    N += 1; h = m[0](x).tanh()  # FAULT
    if N % 2 == 0: C.poke(h, 5, 23, at=3, what="tanh in recomputation")
    return m[1](h)
class M(torch.nn.Module):
    def __init__(s): super().__init__(); s.m = m
    def forward(s, x): return torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)); M_ = M(); o = torch.optim.SGD(M_.parameters(), 0.1)
for C.STEP in range(7): M_(torch.randn(4, 4, requires_grad=True)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
