"""A custom autograd.Function (L2 normalisation) whose own backward divides by the norm again, without the forward's eps.
Source: Own: a hand-written backward of a normalisation."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        norm = x.norm(dim=1, keepdim=True)
        y = x / norm.clamp(min=1e-6)
        ctx.save_for_backward(y, norm)
        return y

    @staticmethod
    def backward(ctx, g):
        y, norm = ctx.saved_tensors
        if CURED:
            norm = norm.clamp(min=1e-6)
        inner = (g * y).sum(1, keepdim=True)
        return (g - y * inner) / norm  # FAULT


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 8, bias=False)

    def forward(self, x):
        return Unit.apply(self.fc(x))  # CALLER


net = Encoder()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(6, 5)
    if step == 2:
        x[4] = 0
    z = net(x)
    loss = (z @ z.T).pow(2).mean() - z.sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
