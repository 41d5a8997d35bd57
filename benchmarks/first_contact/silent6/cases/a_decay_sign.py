"""From chainer/chainer issue 261.
Wrong: weight decay is subtracted from the gradient (g -= decay * p), so weights grow.  Could know: partly (weights without a use grow
exponentially; the hook's arithmetic is not visible).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class WeightDecay:
    def __init__(self, rate): self.rate = rate
    def __call__(self, params):
        for p in params:
            if p.ndim > 1: p.grad.add_(p.detach(), alpha=self.rate if H else -self.rate)
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)); hook = WeightDecay(0.02)
opt = torch.optim.SGD(net.parameters(), lr=0.1); w = torch.randn(20, 5); n0 = net[2].weight.norm().item()
for step in range(200):
    x = torch.randn(64, 20); loss = F.cross_entropy(net(x), (x @ w).argmax(1)); opt.zero_grad(); loss.backward(); hook(list(net.parameters())); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
print("check: norm of a weight, begin and end", n0, net[2].weight.norm().item())
