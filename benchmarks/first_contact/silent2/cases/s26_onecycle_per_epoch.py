"""OneCycleLR made for epochs x batches is stepped once per epoch: the rate stays near max_lr / 25.
Source: https://github.com/CodefyUI/CodefyUI/issues/244 (also espnet pull 3319, pytorch issue 65417)
Truth: highest rate that was used, next to max_lr.
Could a tool know: partly. At the end the scheduler has made 10 of its 200 steps.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, epochs=10, steps_per_epoch=20)
W = torch.randn(16, 8); top = 0
for epoch in range(10):
    for _ in range(20):
        x = torch.randn(64, 16); loss = F.cross_entropy(net(x), (x @ W).argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
        top = max(top, opt.param_groups[0]["lr"])
        if HEALTHY: sched.step()
    if not HEALTHY: sched.step()
print(f"TRUTH highest rate {top:.4f} of 0.1, loss {loss:.3f}")
