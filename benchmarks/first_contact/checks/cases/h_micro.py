"""4 micro-batches a step, gradient accumulation, clipping, dropout and batch norm."""
from _c import *
m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(.2), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)); o = torch.optim.AdamW(m.parameters(), 1e-3)
for s in range(6):
    o.zero_grad(); tot = 0.
    for k in range(4): x = torch.randn(8, 3, 10, 10); y = torch.randint(4, (8,)); l = F.cross_entropy(m(x), y) / 4; l.backward(); tot += l.item()
    nn.utils.clip_grad_norm_(m.parameters(), 1.); o.step(); print(s, tot.hex())
