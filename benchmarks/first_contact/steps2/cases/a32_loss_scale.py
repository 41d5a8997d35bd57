import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)).half()
opt = torch.optim.SGD(net.parameters(), 1e-3)
scale = 128.0
for step in range(4):
    if step == 2:
        scale = 2.0 ** 18  # a static loss scale that was raised by hand
    x = torch.randn(32, 8).half()
    loss = (net(x) - 3 * x).float().square().mean()
    (loss * scale).backward()
    for p in net.parameters():
        p.grad.div_(scale)
    print(step, loss.item(), all(bool(p.grad.isfinite().all()) for p in net.parameters()))
    opt.step()
    opt.zero_grad()
