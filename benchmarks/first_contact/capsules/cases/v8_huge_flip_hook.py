"""Shortest, without a dispatch mode: a hook flips bit 30 of one result, once; the loss overflows; the report speaks of compiled code."""
import torch

torch.manual_seed(3)
model = torch.nn.Linear(8, 16)
opt = torch.optim.SGD(model.parameters(), 0.1)
left = []


def flip(module, args, out):
    if left:
        left.pop()
        out.data.view(-1).view(torch.int32)[5] ^= 1 << 30


model.register_forward_hook(flip)
for k in range(4):
    opt.zero_grad()
    if k == 1:
        left.append(1)
    loss = model(torch.randn(8, 8)).square().mean()
    loss.backward()
    opt.step()
