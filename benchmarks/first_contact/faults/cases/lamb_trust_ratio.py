"""A hand-written LAMB: the trust ratio |w| / |update| of a layer whose gradient is zero.
Source: mosaicml/composer#967 (review), microsoft/dion#24."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-6):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["m"], st["v"] = torch.zeros_like(p), torch.zeros_like(p)
                st["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                st["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                update = st["m"] / (st["v"].sqrt() + group["eps"])
                w, u = p.norm(), update.norm()
                if CURED:
                    ratio = torch.where((w > 0) & (u > 0), w / u.clamp(min=1e-12), 1.0)
                else:
                    ratio = w / u  # FAULT
                p.sub_(group["lr"] * ratio * update)  # FAULT


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x, use_b):
        h = torch.relu(self.body(x))
        return self.a(h) + (self.b(h) if use_b else 0.0 * self.b(h))


net = TwoHeads()
opt = Lamb(net.parameters())
for step in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 4), False), torch.randint(2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
