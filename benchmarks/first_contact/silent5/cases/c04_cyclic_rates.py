import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# cosine annealing with warm restarts, label smoothing, weight decay
x = torch.randn(2048, 20)
y = (x @ torch.randn(20, 6)).argmax(1)
net = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 6))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.05)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 100, 1, eta_min=1e-4)
for step in range(700):
    i = torch.randint(2048, (48,))
    loss = F.cross_entropy(net(x[i]), y[i], label_smoothing=0.1)
    opt.zero_grad(); loss.backward(); opt.step(); sched.step()
print("steps", 700)
report(net)
