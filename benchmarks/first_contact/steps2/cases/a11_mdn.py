import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class MDN(nn.Module):
    def __init__(self):
        super().__init__(); self.h, self.pi, self.mu, self.s = nn.Linear(2, 8), nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(8, 3)
    def forward(self, x, y):
        h = torch.tanh(self.h(x))
        pi, mu, sigma = self.pi(h).softmax(-1), self.mu(h), F.elu(self.s(h)) + 1
        p = torch.exp(-0.5 * ((y - mu) / sigma) ** 2) / (sigma * (2 * torch.pi) ** 0.5)
        return -torch.log((pi * p).sum(-1)).mean()
net = MDN(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    y = torch.randn(8, 1)
    if step == 2: y[5] = 60.0  # an outlier
    loss = net(torch.randn(8, 2), y)
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
