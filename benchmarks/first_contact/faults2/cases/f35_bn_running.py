"""karpathy/makemore#22, torch/nn#1271: own batch norm, running variance of a batch of one is nan; only eval shows it
TRUTH op=aten.var reason=division by zero|argument|one element"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class BN(nn.Module):
    def __init__(self, d):
        super().__init__(); self.g, self.b = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.register_buffer("rm", torch.zeros(d)); self.register_buffer("rv", torch.ones(d))
    def forward(self, x):
        if self.training:
            m, v = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                u = x.var(0, unbiased=not CURED)  # FAULT
                self.rm.mul_(0.9).add_(0.1 * m); self.rv.mul_(0.9).add_(0.1 * u)
        else: m, v = self.rm, self.rv
        return self.g * (x - m) / torch.sqrt(v + 1e-5) + self.b
net = nn.Sequential(nn.Embedding(27, 8), nn.Flatten(), nn.Linear(24, 32), BN(32), nn.Tanh(), nn.Linear(32, 27)); opt = torch.optim.SGD(net.parameters(), 0.1)
X, Y = torch.randint(0, 27, (25, 3)), torch.randint(0, 27, (25,))
for ep in range(2):
    net.train()
    for i in torch.arange(25).split(8):
        loss = F.cross_entropy(net(X[i]), Y[i]); opt.zero_grad(); loss.backward(); opt.step()
    net.eval()
    with torch.no_grad(): val = F.cross_entropy(net(X), Y)
    print(ep, loss.item(), val.item())
done(val, net)
