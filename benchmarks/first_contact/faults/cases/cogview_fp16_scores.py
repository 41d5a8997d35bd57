"""Float16 attention that scales after the product: the dot product of long queries overflows first.
Source: CogView (PB-relax, arXiv 2105.13290), pytorch/audio#2716 (scaling before the product)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.qkv, self.out = nn.Linear(w, 3 * w), nn.Linear(w, w)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scale = q.shape[-1] ** -0.5
        if CURED:
            q, scale = q * scale, 1.0
        scores = q @ k.mT  # FAULT
        return self.out((scores * scale).softmax(-1) @ v)


net = nn.Sequential(nn.Linear(8, 256), Attention(256), nn.Linear(256, 4)).half()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(4):
    x = torch.randn(2, 6, 8).half()
    if step == 2:
        with torch.no_grad():
            net[1].qkv.weight.mul_(150)
    loss = net(x).float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
