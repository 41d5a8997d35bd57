"""MAML with torch.func: the inner loss is an RMSE, which is exactly zero on a task of constants.
Source: discuss.pytorch.org/t/rmse-loss-function/16540 (the root's gradient at 0); C. Finn et al., arXiv 1703.03400."""
import sys, math
import torch
from torch import nn
from torch.func import functional_call

torch.set_num_threads(1)
torch.manual_seed(46)
EPS = 1e-8 if "--cured" in sys.argv else 0.0


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.scale = nn.Linear(32, 1, bias=False)

    def forward(self, x, amplitude):
        return self.scale(self.net(x)) * amplitude


def rmse(pred, y):
    return torch.sqrt(((pred - y) ** 2).mean() + EPS)  # FAULT


def adapt(model, params, x, y, amp, lr=0.05, steps=2):
    for _ in range(steps):
        loss = rmse(functional_call(model, params, (x, amp)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        params = {k: p - lr * g for (k, p), g in zip(params.items(), grads)}
    return params


model = Regressor()
meta = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(12):
    meta.zero_grad()
    total = 0.0
    for task in range(4):
        amp, phase = torch.rand(()) * 4 + 0.5, torch.rand(()) * math.pi
        if step == 5 and task == 2:
            amp = torch.zeros(())  # a dead channel
        xs, xq = torch.rand(10, 1) * 6 - 3, torch.rand(10, 1) * 6 - 3
        fast = adapt(model, dict(model.named_parameters()), xs, amp * torch.sin(xs + phase), amp)
        total = total + ((functional_call(model, fast, (xq, amp)) - amp * torch.sin(xq + phase)) ** 2).mean()
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    meta.step()
    losses.append(total.item() / 4)
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
