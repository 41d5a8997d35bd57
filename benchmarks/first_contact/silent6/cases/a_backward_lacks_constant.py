"""From zergtant/pytorch-handbook issue 69.
Wrong: MulConstant's backward returns grad_output without the constant.  Could know: yes, the Function's backward is not the derivative of
its forward (with --check).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class MulConstant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, constant): ctx.constant = constant; return tensor * constant
    @staticmethod
    def backward(ctx, grad_output): return (grad_output * ctx.constant if H else grad_output), None
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(10, 32); self.b = nn.Linear(10, 32); self.o = nn.Linear(32, 1)
    def forward(self, x): return self.o(torch.tanh(self.a(x)) + MulConstant.apply(torch.relu(self.b(x)), 0.1))
net = Net(); opt = torch.optim.SGD(net.parameters(), .05); w = torch.randn(10, 1)
for step in range(120):
    x = torch.randn(64, 10); loss = F.mse_loss(net(x), (x @ w).abs()); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
t = torch.ones(3, requires_grad=True); MulConstant.apply(t, 0.1).sum().backward(); print("check: gradient of 0.1 * x", t.grad[0].item())
