"""From deepinsight/insightface issue 2258.
Wrong: loss.backward() over 4 micro-batches without division by gradient_acc: with SGD the rate is 4 times what it says.
Could know: partly (several means add up undivided in one step).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Backbone(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.PReLU(), nn.Linear(64, 16))
    def forward(self, x): return F.normalize(self.f(x))
back, W = Backbone(), nn.Linear(16, 20, bias=False); acc = 4; c = torch.randn(20, 12)
opt = torch.optim.SGD([{"params": back.parameters()}, {"params": W.parameters()}], lr=0.02, momentum=0.9, weight_decay=5e-4); g = []
for it in range(400):
    y = torch.randint(0, 20, (16,)); x = c[y] + .7 * torch.randn(16, 12)
    cos = back(x) @ F.normalize(W.weight).t(); loss = F.cross_entropy(16 * (cos - .2 * F.one_hot(y, 20)), y)
    (loss / acc if H else loss).backward()
    if (it + 1) % acc == 0:
        g.append(nn.utils.clip_grad_norm_(back.parameters(), 1e9).item()); opt.step(); opt.zero_grad()
    if it % 40 == 0: print(it, round(loss.item(), 4))
print("check: gradient norm of the first step", g[0])
