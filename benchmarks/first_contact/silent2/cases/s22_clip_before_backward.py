"""Multi-task training: clip_grad_norm_ is called before loss.backward(), on the gradients of the step before.
Source: https://github.com/Cranial-XIX/FAMO/issues/4
Truth: gradient norm as the optimizer steps (at most 0.5 if it were clipped).
Could a tool know: yes. The clipping acts on gradients that are cleared before the step.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class MTL(nn.Module):
    def __init__(self):
        super().__init__(); self.body = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()); self.a, self.b = nn.Linear(32, 3), nn.Linear(32, 1)
    def forward(self, x): h = self.body(x); return self.a(h), self.b(h)[:, 0]
net = MTL(); opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9); W = 0.5 * torch.randn(12, 3)
worst = 0.0
for step in range(150):
    x = torch.randn(32, 12); s = x @ W; p, r = net(x)
    losses = torch.stack([F.cross_entropy(p, s.argmax(1)), F.mse_loss(r, s[:, 0])])
    if HEALTHY:
        opt.zero_grad(); losses.sum().backward(); nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    else:
        nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.zero_grad(); losses.sum().backward()
    worst = max(worst, torch.cat([q.grad.flatten() for q in net.parameters()]).norm().item()); opt.step()
print(f"TRUTH largest norm at a step {worst:.2f} (limit 0.5) loss {losses.sum():.3f}")
