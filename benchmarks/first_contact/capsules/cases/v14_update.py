"""Shortest: an update by a large rate overflows from finite weights and gradients; "no capsule: ... does not make it from finite operands" is false."""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), 3e38)
model(torch.randn(8, 8)).square().mean().mul(100).backward()
before = [(p.isfinite().all().item(), p.grad.isfinite().all().item()) for p in model.parameters()]
print(before)
opt.step()
