import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
SCRATCH = torch.zeros(6, 8)
class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        global SCRATCH
        if SCRATCH.shape != x.shape or SCRATCH.dtype != x.dtype: SCRATCH = torch.zeros_like(x)
        SCRATCH.copy_(x.tanh())
        ctx.y = SCRATCH  # one workspace for all layers
        return SCRATCH.clone()
    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.y ** 2)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); self.b = nn.Linear(8, 8)
    def forward(self, x):
        h = self.a(x)
        return Tanh.apply(self.b(Tanh.apply(h)))

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
