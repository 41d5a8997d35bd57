"""From chainer/chainer issue 1091.
Wrong: a batch norm's population mode uses decay = 1/N on the old average: after N batches it holds almost only the last batch.
Could know: partly (the buffers are nearly the last batch's statistics; a hand-written norm).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class BN(nn.Module):
    def __init__(self, d): super().__init__(); self.g = nn.Parameter(torch.ones(d)); self.b = nn.Parameter(torch.zeros(d)); self.register_buffer("m", torch.zeros(d)); self.register_buffer("v", torch.ones(d)); self.N = 0
    def forward(self, x):
        if self.training:
            mu, var = x.mean(0), x.var(0, unbiased=False); self.N += 1; decay = 1 - 1 / self.N if H else 1 / self.N
            self.m.mul_(decay).add_(mu.detach(), alpha=1 - decay); self.v.mul_(decay).add_(var.detach(), alpha=1 - decay)
        else: mu, var = self.m, self.v
        return (x - mu) / (var + 1e-5).sqrt() * self.g + self.b
net = nn.Sequential(BN(8), nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3)); opt = torch.optim.SGD(net.parameters(), .05, .9); w = torch.randn(8, 3)
for step in range(120):
    x = torch.randn(16, 8) * 3 + 5 + torch.randn(1, 8); loss = F.cross_entropy(net(x), ((x - 5) @ w).argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: buffer against the last batch / against the population", (net[0].m - x.mean(0)).abs().mean().item(), (net[0].m - 5).abs().mean().item())
