# bare: a hand-written KL divergence with a zero in the target prints nan (0*log 0), all gradients are finite and right, status 0.
# numscope run: stops at the first such batch with status 3.
import os, torch
from torch import nn
torch.manual_seed(0)
m = nn.Linear(4, 3); opt = torch.optim.SGD(m.parameters(), 0.1)
if os.environ.get("FC_WATCH"):
    import numscope; numscope.watch(m)
for step in range(4):
    t = torch.eye(3)[torch.randint(3, (5,))] if step == 2 else torch.rand(5, 3).softmax(1)
    lp = m(torch.randn(5, 4)).log_softmax(1); loss = (t * (t.log() - lp)).sum(1).mean()
    opt.zero_grad(); loss.backward(); print(step, loss.item(), m.weight.grad.isfinite().all().item()); opt.step()
print(m.weight.sum().item())
