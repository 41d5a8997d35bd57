"""From hash2430/pitchtron issue 3.
Wrong: the gradient reversal layer is an nn.Module with a method backward(), which autograd never calls: nothing is reversed.
Could know: partly (a module that defines backward and no Function; its output is its input).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Rev(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.view_as(x)
    @staticmethod
    def backward(ctx, g): return -g
class GRL(nn.Module):
    def forward(self, x): return Rev.apply(x) if H else x
    def backward(self, x): return -x
class M(nn.Module):
    def __init__(self): super().__init__(); self.enc = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)); self.y = nn.Linear(8, 2); self.grl = GRL(); self.spk = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    def forward(self, x): h = self.enc(x); return self.y(h), self.spk(self.grl(h))
m = M(); opt = torch.optim.Adam(m.parameters(), 2e-3)
for step in range(150):
    d = torch.randint(0, 2, (64,)); x = torch.randn(64, 8); y = (x[:, 0] > 0).long(); x[:, 1] += 2. * (2 * d - 1); a, b = m(x); ls = F.cross_entropy(b, d); loss = F.cross_entropy(a, y) + ls; opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4), round(ls.item(), 4))
print("check: speaker loss at the end (ln 2 = 0.693 if nothing can be told)", ls.item())
