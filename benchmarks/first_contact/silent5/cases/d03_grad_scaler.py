import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", h.hexdigest())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
    def forward(self, x):
        return self.body(x)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=20)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 60)
for step in range(60):
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    if step in (7, 30):
        x[0, 0] = float("inf")
    before = [b.clone() for b in net.buffers()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = F.cross_entropy(out.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    was_bad = any(not p.grad.isfinite().all() for p in net.parameters())
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    sched.step()
    if DROP and was_bad:
        for b, o in zip(net.buffers(), before): b.copy_(o)
print("SCALE", scaler.get_scale())
bits(net)
