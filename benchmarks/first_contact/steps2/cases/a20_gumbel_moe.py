import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class MoE(nn.Module):  # router with hand-written Gumbel noise: log(-log(u)), u == 0 or 1; entropy of p with p == 0
    def __init__(self):
        super().__init__(); self.router, self.experts = nn.Linear(4, 3), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        p = self.router(x).softmax(-1)
        entropy = -(p * p.log()).sum(-1).mean()
        y = sum(p[:, i:i + 1] * e(x) for i, e in enumerate(self.experts))
        return y, entropy
net = MoE(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(4):
    x = torch.randn(8, 4) * (400 if step == 2 else 1)
    y, entropy = net(x)
    loss = y.square().mean() - 0.01 * entropy
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
