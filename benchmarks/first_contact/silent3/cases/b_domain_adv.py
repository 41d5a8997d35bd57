"""Domain-adversarial training whose encoder maximizes the domain classifier's (unbounded) cross-entropy; the classifier is trained in the
first 60 steps only, so features grow without end. Cure: it is trained in all steps, and the weight is 0.1."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
lam = 0.1 if HEALTHY else 1.0
enc = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32))
cls, dom = nn.Linear(32, 3), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
oe = torch.optim.Adam([*enc.parameters(), *cls.parameters()], lr=2e-3)
od = torch.optim.Adam(dom.parameters(), lr=1e-3)
w = torch.randn(10, 3)
lost = Lost("abs")
ce = nn.functional.cross_entropy
for step in range(300):
    d = torch.randint(0, 2, (64,))
    x = torch.randn(64, 10) + d[:, None] * 1.0
    y = (x @ w).argmax(1)
    ld = ce(dom(enc(x).detach()), d)
    od.zero_grad()
    ld.backward()
    if HEALTHY or step < 60:
        od.step()
    h = enc(x)
    task, adv = ce(cls(h), y), ce(dom(h), d)
    oe.zero_grad()
    (task - lam * adv).backward()
    oe.step()
    if not lost(adv):
        break
lost.report()
