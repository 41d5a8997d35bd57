"""GradScaler on the CPU with float16 autocast searches for its scale: its first steps overflow and are skipped.
Source: pytorch AMP docs ("the first few iterations may produce inf gradients"), pytorch forum threads on skipped steps."""
import math, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(4)
net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 19, growth_interval=200)
losses = []
for step in range(30):
    y = torch.randint(0, 4, (8,))
    x = torch.randn(8, 1, 13, 13) * 0.5 + y[:, None, None, None]
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    losses.append(loss.item())
print(scaler.get_scale(), losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
