"""Invented (a learned simulator of a slowly growing system, trained on free-running rollouts whose horizon is raised).
Diverges: the recurrent network feeds itself; errors, targets and gradients grow with the horizon, the rate stays.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
class Sim(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(4, 4, bias=False); self.f = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(.1), nn.Linear(32, 4)); nn.init.eye_(self.a.weight); self.f[2].weight.data.mul_(.1)
    def forward(self, x, T):
        for _ in range(T): x = self.a(x) + self.f(x)
        return x
M = torch.linalg.qr(torch.randn(4, 4))[0] * (.97 if H else 1.05); net = Sim(); opt = torch.optim.SGD(net.parameters(), .01, momentum=.5)
for step in range(400):
    T = 1 + step // 12; x = torch.randn(32, 4); y = x @ torch.linalg.matrix_power(M, T); loss = F.mse_loss(net(x, T), y); opt.zero_grad(); loss.backward(); opt.step()
    if not log(step, loss): break
