import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask); ctx.p = p
        return x * mask / (1 - p)
    @staticmethod
    def backward(ctx, g):
        mask, = ctx.saved_tensors
        return g * mask, None  # / (1 - p)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); pass
    def forward(self, x):
        h = self.a(x)
        return Drop.apply(h, 0.5)

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
