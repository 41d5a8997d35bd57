"""Shortest: an idle dispatch mode of the script's own; the loss's log of 0 isn't seen, and the report speaks of compiled code."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Idle(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
Idle().__enter__()
if True:
    for k in range(5):
        opt.zero_grad()
        p = torch.relu(model(torch.randn(8, 8))) + (0 if k == 3 else 0.1)
        loss = torch.log(p).mean()
        loss.backward()
        opt.step()
