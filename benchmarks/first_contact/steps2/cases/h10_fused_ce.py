import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class FusedCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        p = x.softmax(-1); n = len(x)
        loss = -x.log_softmax(-1)[torch.arange(n), y].mean()
        p[torch.arange(n), y] -= 1
        ctx.save_for_backward(p / n)  # the gradient is made in the forward
        return loss
    @staticmethod
    def backward(ctx, g):
        d, = ctx.saved_tensors
        return d * g, None

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); pass
    def forward(self, x):
        h = self.a(x)
        return FusedCE.apply(h, torch.tensor([0, 1, 2, 3, 4, 5]))

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
