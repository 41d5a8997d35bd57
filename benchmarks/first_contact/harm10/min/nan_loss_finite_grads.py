# bare: the loss of one batch is printed as nan (every label is ignore_index), its gradients are exactly 0, the training goes on, status 0.
# numscope run: stops at that batch with status 3; watch: raises numscope's error.
import torch
from torch import nn
torch.manual_seed(0)
m = nn.Linear(4, 3)
opt = torch.optim.SGD(m.parameters(), 0.1)
import os
if os.environ.get("FC_WATCH"):
    import numscope; numscope.watch(m)
for step in range(4):
    y = torch.randint(3, (5,)) if step != 2 else torch.full((5,), -100)
    loss = nn.functional.cross_entropy(m(torch.randn(5, 4)), y)
    opt.zero_grad(); loss.backward()
    print(step, loss.item(), [p.grad.isfinite().all().item() for p in m.parameters()])
    opt.step()
print(m.weight.sum().item(), m.weight.isfinite().all().item())
