"""Shortest: a list operator in place makes an inf; "no capsule: ... alone gives finite results" is false."""
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
for k in range(4):
    opt.zero_grad()
    model(torch.randn(8, 8)).square().mean().backward()
    if k == 2:
        torch._foreach_mul_([p.grad for p in model.parameters()], 1e38)
        torch._foreach_mul_([p.grad for p in model.parameters()], 1e10)
    opt.step()
