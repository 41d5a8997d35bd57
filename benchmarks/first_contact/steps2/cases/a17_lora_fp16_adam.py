import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class LoRA(nn.Module):
    def __init__(self, base, r=2, alpha=16):
        super().__init__(); self.base = base.requires_grad_(False); self.s = alpha / r
        self.A, self.B = nn.Linear(8, r, bias=False), nn.Linear(r, 8, bias=False); nn.init.zeros_(self.B.weight)
    def forward(self, x):
        return self.base(x) + self.s * self.B(self.A(x))
net = nn.Sequential(LoRA(nn.Linear(8, 8)), nn.GELU(), LoRA(nn.Linear(8, 8))).half()
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-3)  # eps 1e-8 is 0 in float16
for step in range(4):
    loss = net(torch.randn(8, 8).half() * 0.1).float().square().mean() * (1e-3 if step == 0 else 1)
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
