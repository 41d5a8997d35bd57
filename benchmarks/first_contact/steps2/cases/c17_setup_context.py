import torch
from torch import nn

class Soft(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x, beta):
        return nn.functional.softplus(x * beta) / beta
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(x * beta)
        return g * s, (g * (x * s / beta)).sum()  # the term of 1 / beta is missing

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.beta = nn.Linear(8, 8), nn.Parameter(torch.tensor(1.5))
    def forward(self, x):
        return Soft.apply(self.a(x).float(), self.beta)

torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(torch.randn(6, 8))
    y.square().mean().backward()
    opt.step()
    opt.zero_grad()
print("end")
