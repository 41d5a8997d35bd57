# bare: a Uniform prior outside its support adds the constant +inf to the loss; the likelihood's gradients are finite and bring the parameter back, status 0.
import os, torch
from torch import nn
torch.manual_seed(0); m = nn.Linear(1, 1); nn.init.constant_(m.weight, 1.2)
opt = torch.optim.SGD(m.parameters(), 0.1)
if os.environ.get("FC_WATCH"):
    import numscope; numscope.watch(m)
prior = torch.distributions.Uniform(0.0, 1.0, validate_args=False)
for step in range(8):
    loss = m(torch.ones(4, 1)).pow(2).mean() - prior.log_prob(m.weight).sum()
    opt.zero_grad(); loss.backward(); print(step, loss.item(), m.weight.grad.isfinite().all().item()); opt.step()
