"""IterableDataset with 2 workers and without get_worker_info: every sample comes twice.
Source: https://github.com/huggingface/datasets/issues/3423 (also espnet pull 2081, pytorch issue 30599)
Truth: samples of an epoch next to distinct ones.
Could a tool know: yes. Each batch comes twice in a row.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
X = torch.randn(1600, 10); Y = (X[:, 0] * X[:, 1] > 0).long()
class Stream(IterableDataset):
    def __iter__(self):
        w = get_worker_info(); ids = range(w.id, 1600, w.num_workers) if HEALTHY and w else range(1600)
        for i in ids: yield i, X[i], Y[i]
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2)); opt = torch.optim.Adam(net.parameters(), 3e-3); seen = []
for epoch in range(1):
    for i, x, y in DataLoader(Stream(), 16, num_workers=2):
        seen += i.tolist(); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH samples {len(seen)} distinct {len(set(seen))} loss {loss:.3f}")
