import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class HardShrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x.abs() > 0.5, x, torch.zeros_like(x)) + x.abs()
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * ((x.abs() > 0.5).to(g) + x.sign())

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); pass
    def forward(self, x):
        h = self.a(x)
        return HardShrink.apply(torch.cat([h, h.relu(), h * 0], -1))

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
