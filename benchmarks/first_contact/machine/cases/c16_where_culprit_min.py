# opts: --check capsule
# truth: shortest for c10: float16 autocast, two layers whose weight gradients both overflow by themselves: what stands under Where must be the culprit's result (last layer first in time)
# source: as c10
import torch
from torch import nn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False)); o = torch.optim.SGD(m.parameters(), 0.1)
for step in range(2):
    with torch.autocast("cpu", torch.float16): y = m(torch.randn(4, 8) * 300)
    y.backward(torch.full_like(y, 400)); print("TRUTH", [(n, p.grad.isfinite().all().item(), p.grad.abs().max().item()) for n, p in m.named_parameters()]); o.step(); o.zero_grad()
