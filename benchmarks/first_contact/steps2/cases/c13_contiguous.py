import torch, torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        flat = g.as_strided((g.numel(),), (1,)) if g.untyped_storage().nbytes() >= g.numel() * g.element_size() else g.reshape(-1)
        return flat.view_as(y) * y  # reads memory in its own order, as a kernel does

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 8); pass
    def forward(self, x):
        h = self.a(x)
        return Exp.apply(h).t()

if __name__ == "__main__":
    torch.manual_seed(0); net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-2)
    for step in range(4):
        net(torch.randn(6, 8)).square().mean().backward(); opt.step(); opt.zero_grad()
    print("end")
