import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class Polar(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x * x + y * y + 1).sqrt(), x * y
    @staticmethod
    def backward(ctx, g, gz):
        x, y = ctx.saved_tensors
        r = (x * x + y * y + 1).sqrt()
        return g * x / r, g * y / r  # gz is forgotten

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); self.b = nn.Linear(8, 8)
    def forward(self, x):
        h = self.a(x)
        r, z = Polar.apply(h, self.b(x)); return r + z

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
