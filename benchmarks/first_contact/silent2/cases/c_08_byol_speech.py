"""Healthy, 400 steps: BYOL on 1-D signals, target by EMA (in train mode for its batch norm, without gradients), predictor only at the online side, warm-up and cosine by LambdaLR, weight decay groups. STEPS 400"""
import copy, math, torch, torch.nn.functional as F
from torch import nn
torch.set_num_threads(1); torch.manual_seed(0)
enc = nn.Sequential(nn.Conv1d(1, 16, 5, 2, 2), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 5, 2, 2), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 32)); pred = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32)); tgt = copy.deepcopy(enc).requires_grad_(False)
P = [*enc.parameters(), *pred.parameters()]; opt = torch.optim.AdamW([{"params": [p for p in P if p.ndim > 1], "weight_decay": 0.05}, {"params": [p for p in P if p.ndim == 1], "weight_decay": 0.0}], 2e-3); sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 40) * 0.5 * (1 + math.cos(math.pi * s / 400)))
def aug(x): return x * (0.7 + 0.6 * torch.rand(len(x), 1, 1)) + 0.1 * torch.randn_like(x)
def l(a, b): return 2 - 2 * F.cosine_similarity(a, b).mean()
for step in range(400):
    x = torch.sin(torch.arange(32.0) * (0.2 + torch.rand(32, 1, 1)) + 6 * torch.rand(32, 1, 1)); a, b = aug(x), aug(x)
    with torch.no_grad(): ta, tb = tgt(a), tgt(b)
    loss = l(pred(enc(a)), tb) + l(pred(enc(b)), ta); opt.zero_grad(); loss.backward(); opt.step(); sched.step()
    with torch.no_grad():
        for p, q in zip(tgt.parameters(), enc.parameters()): p.lerp_(q, 0.01)
print(f"STEPS 400 loss {loss:.3f}")
