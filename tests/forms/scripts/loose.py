import torch

torch.manual_seed(0)
w = torch.randn(4, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for i in range(4):
    x = torch.randn(8, 4)
    p = x @ w
    if i == 2:
        p = torch.log(p - 100)  # FAULT
    loss = p.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
