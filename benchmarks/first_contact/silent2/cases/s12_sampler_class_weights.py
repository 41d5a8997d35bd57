"""Imbalanced data: WeightedRandomSampler gets one weight per class (2) in place of one per sample: only samples 0 and 1 are ever drawn.
Source: https://github.com/deep-voice/soundbay/pull/49
Truth: number of distinct samples that were drawn; accuracy on the whole set.
Could a tool know: partly. The sampler has 2 weights for a dataset of 400, or: all rows of all batches are two rows.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class Calls(Dataset):   # whale calls as small spectrograms
    def __init__(self):
        self.y = (torch.rand(400) < 0.1).long(); self.y[0], self.y[1] = 0, 1
        self.x = torch.randn(400, 1, 16, 16); self.x[self.y == 1, 0, 4:8] += 1.0; self.seen = set()
    def __len__(self): return 400
    def __getitem__(self, i): self.seen.add(int(i)); return self.x[i], self.y[i]

ds = Calls(); n = torch.bincount(ds.y).float(); cw = 1 / n
weights = cw[ds.y] if HEALTHY else cw
loader = DataLoader(ds, 20, sampler=WeightedRandomSampler(weights, 400))
net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 2))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(7):
    for x, y in loader:
        loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
net.eval()
with torch.no_grad(): acc = (net(ds.x).argmax(1) == ds.y).float().mean()
print(f"TRUTH distinct samples {len(ds.seen)} of 400, accuracy {acc:.2f} loss {loss:.4f}")
