"""Capsule network with dynamic routing; a blank image gives capsules that are all zero.
Source: jindongwang/Pytorch-CapsuleNet#7 and #13, ageron/handson-ml#173."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(33)
EPS = 1e-7 if "--cured" in sys.argv else 0.0


def squash(s):
    sq = (s ** 2).sum(-1, keepdim=True)
    return sq / (1 + sq) * s / torch.sqrt(sq + EPS)  # FAULT


class CapsNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5, bias=False)
        self.primary = nn.Conv2d(16, 32, 5, stride=2, bias=False)
        self.W = nn.Parameter(0.1 * torch.randn(classes, 36 * 4, 8, 8))

    def forward(self, x):
        x = self.primary(F.relu(self.conv(x)))
        u = squash(x.view(len(x), 4, 8, -1).permute(0, 1, 3, 2).reshape(len(x), -1, 8))
        hat = torch.einsum("cnij,bnj->bcni", self.W, u)
        b = torch.zeros(hat.shape[:3])
        for _ in range(2):
            v = squash((b.softmax(1)[..., None] * hat).sum(2))
            b = b + (hat.detach() * v.detach()[:, :, None]).sum(-1)
        return v.norm(dim=-1)


net = CapsNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
losses = []
for step in range(12):
    y = torch.randint(0, 4, (8,))
    x = torch.rand(8, 1, 20, 20) * (y[:, None, None, None] + 1) / 4
    if step == 6:
        x[3] = 0.0
    length = net(x)
    t = F.one_hot(y, 4)
    loss = (t * F.relu(0.9 - length) ** 2 + 0.5 * (1 - t) * F.relu(length - 0.1) ** 2).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
