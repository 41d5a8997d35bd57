"""Healthy, 500 steps: student with an ensemble of teachers in a plain list (meant to be unregistered), EMA teacher, a partial checkpoint loaded on purpose (strict=False, new head), frozen stem in eval. STEPS 500"""
import copy, torch, torch.nn.functional as F
from torch import nn
torch.set_num_threads(1); torch.manual_seed(0)
def net(k): m = nn.Sequential(); m.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU()); m.body = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1)); m.add_module(f"head{k}", nn.Linear(64, k)); return m
old = net(7); P = torch.randn(4, 1, 8, 8)
class Distill(nn.Module):
    def __init__(self):
        super().__init__(); self.student = net(4); self.student.load_state_dict(old.state_dict(), strict=False); self.student.stem.requires_grad_(False)
        self.teachers = [net(4).eval().requires_grad_(False) for _ in range(2)]
    def train(self, mode=True): super().train(mode); self.student.stem.eval(); return self
    def forward(self, x):
        with torch.no_grad(): t = sum(m(x).softmax(1) for m in self.teachers) / 2
        return self.student(x), t
m = Distill().train(); ema = copy.deepcopy(m.student).requires_grad_(False); opt = torch.optim.SGD([p for p in m.student.parameters() if p.requires_grad], 0.05, momentum=0.9, nesterov=True)
for step in range(500):
    y = torch.randint(0, 4, (24,)); x = P[y] + 0.7 * torch.randn(24, 1, 8, 8); o, t = m(x)
    loss = F.cross_entropy(o, y) + 0.1 * F.kl_div(o.log_softmax(1), t, reduction="batchmean"); opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for a, b in zip(ema.state_dict().values(), m.student.state_dict().values()): a.copy_(b) if not a.is_floating_point() else a.lerp_(b, 0.02)
print(f"STEPS 500 loss {loss:.3f}")
