"""Healthy: a curriculum of ever longer sequences (copy task, GRU, clipped): the loss rises at each stage.  600 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
class M(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(12, 24); self.g = nn.GRU(24, 64, batch_first=True); self.o = nn.Linear(64, 12)
    def forward(self, x): return self.o(self.g(self.e(x))[0])
m = M(); opt = torch.optim.Adam(m.parameters(), 3e-3)
for step in range(600):
    L = 1 + step // 100; s = torch.randint(0, 10, (64, L)); x = torch.cat([s, torch.full((64, L), 11)], 1); loss = F.cross_entropy(m(x)[:, L:].flatten(0, 1), s.flatten()); opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.); opt.step()
    if step % 50 == 0: print(step, L, loss.item())
