# opts: --check again:every=1
# truth: shortest for a39: a unit that fails now and then: one bit (20) of one element of addmm at steps 2 and 5; healthy between
# source: arXiv 2203.08989 (SDCs recur on the same core)
import flips as C, torch
torch.manual_seed(0); m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)
def hook(s, i, y):
    if C.STEP == 5: C.DONE = C.DONE and C.W; C.W = True
    C.poke(y, 5, 20, at=C.STEP if C.STEP in (2, 5) else 99, what="addmm")
C.W = False; m.register_forward_hook(hook)
for C.STEP in range(10): m(torch.randn(4, 4)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
