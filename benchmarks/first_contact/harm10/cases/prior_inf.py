#: what: MAP training with a Uniform prior: outside its support log_prob is the constant -inf, the loss inf, its gradient that of the likelihood; the parameter comes back by weight decay
#: benign: an inf loss with finite gradients
#: source: https://github.com/pytorch/pytorch/issues/15288
# PRELUDE
import torch.distributions as D
m = nn.Linear(3, 1); m.register_parameter("s", nn.Parameter(torch.tensor(1.05))); watch(m); opt = torch.optim.SGD([{"params": [m.weight, m.bias]}, {"params": [m.s], "weight_decay": 2.0}], 0.05); prior = D.Uniform(0.0, 1.0, validate_args=False)
for s in range(15):
    x = torch.randn(16, 3); l = 0.5 * (m(x) - x.sum(1, keepdim=True)).pow(2).mean() / m.s - prior.log_prob(m.s).sum(); opt.zero_grad(); l.backward(); print(s, l.item(), m.s.item()); opt.step()
show(m, opt)
