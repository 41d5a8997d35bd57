# opts: --check again:every=1
# truth: shortest for a12: bit 20 of one element of an intermediate (mm) in an own optimizer's step, line 10, step 3; the weight's sub_ comes after it
# source: as a12 (Shampoo-like preconditioner)
import flips as C, torch
class Pre(torch.optim.Optimizer):
    @torch.no_grad()
    def step(s):
        p = s.param_groups[0]["params"][0]
        u = p.grad @ torch.eye(4)  # FAULT: aten.mm
        C.poke(u, 5, 20, at=3, what="mm in step")
        p.sub_(u.tanh(), alpha=0.1)
torch.manual_seed(0); m = torch.nn.Linear(4, 4, bias=False); o = Pre(m.parameters(), {})
for C.STEP in range(7): m(torch.randn(4, 4)).square().mean().backward(); o.step(); o.zero_grad()
C.finish(m)
