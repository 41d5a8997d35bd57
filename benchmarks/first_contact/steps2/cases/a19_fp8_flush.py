import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.gate, self.out = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
        with torch.no_grad(): self.gate.weight.copy_(torch.eye(16)); self.gate.weight[0] = self.gate.weight[1]; self.gate.weight[:, 0] = 0
        self.gate.weight.requires_grad_(False)
    def forward(self, x):
        h = torch.log(self.gate(x))
        return self.out(h) + h.mean(-1, keepdim=True)
net = Net(); opt = torch.optim.SGD(net.parameters(), 1e-4)
for step in range(4):
    x = torch.rand(16, 16) + 0.5
    if step == 2: x[:, 0] = 1e6  # an outlier feature that no output uses
    loss = net(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
