"""kozistr/pytorch_optimizer#480: epsilon added after rsqrt, in an optimizer of the script's own
TRUTH op=aten.rsqrt reason=division by zero|optimizer update"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class AdamP(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8): super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None: continue
                st = self.state[p]
                if not st: st["m"], st["v"] = torch.zeros_like(p), torch.zeros_like(p)
                st["m"].lerp_(p.grad, 1 - g["betas"][0]); st["v"].lerp_(p.grad * p.grad, 1 - g["betas"][1])
                v = st["v"] + (1e-16 if CURED else 0)
                inv = v.rsqrt() + g["eps"]  # FAULT
                p.add_(st["m"] * inv, alpha=-g["lr"])
class Rec(nn.Module):
    def __init__(self):
        super().__init__(); self.u, self.i = nn.Embedding(50, 8), nn.Embedding(50, 8)
    def forward(self, u, i): return (self.u(u) * self.i(i)).sum(-1)
net = Rec(); opt = AdamP(net.parameters())
for step in range(4):
    u, i, y = torch.randint(0, 50, (16,)), torch.randint(0, 50, (16,)), torch.rand(16)
    loss = F.mse_loss(net(u, i), y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
