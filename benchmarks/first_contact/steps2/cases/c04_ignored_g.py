import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class Sin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0].cos()

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); pass
    def forward(self, x):
        h = self.a(x)
        return Sin.apply(h)

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
