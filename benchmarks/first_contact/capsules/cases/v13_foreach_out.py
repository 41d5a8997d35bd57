"""Shortest: a list operator in place makes an inf; "no capsule: ... alone gives finite results" is false."""
import torch  # not in place

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
for k in range(4):
    opt.zero_grad()
    model(torch.randn(8, 8)).square().mean().backward()
    if k == 2:
        ps = list(model.parameters())
        for p, g in zip(ps, torch._foreach_div([p.grad for p in ps], 0.0)):
            p.grad = g
    opt.step()
