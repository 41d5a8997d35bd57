import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class TopK(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        v, i = x.topk(k, -1)
        ctx.mark_non_differentiable(i); ctx.save_for_backward(i); ctx.n = x.shape
        return v, i
    @staticmethod
    def backward(ctx, g, gi):
        i, = ctx.saved_tensors
        return torch.zeros(ctx.n, dtype=g.dtype).scatter_(-1, i, g), None

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); pass
    def forward(self, x):
        h = self.a(x)
        v, i = TopK.apply(h, 3); return v * (1 + i % 2)

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
