import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        r = (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()
        ctx.save_for_backward(x, w, r)
        return x * r * w
    @staticmethod
    def backward(ctx, g):
        x, w, r = ctx.saved_tensors
        return g * w * r, (g * x * r).sum(0)  # the term of r is missing

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); self.w = nn.Parameter(torch.ones(8))
    def forward(self, x):
        h = self.a(x)
        return RMSNorm.apply(h, self.w)

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
