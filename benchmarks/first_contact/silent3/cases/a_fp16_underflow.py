"""float16 autocast without a GradScaler, with small losses: most gradients of the first layers are rounded to zero.
Source: https://github.com/engichang1467/Open-Rig3R/issues/35
Truth: more than half of the encoder's gradient elements are exactly 0 (with float32: none).
Could a tool know: yes: a large part of the gradients is zero or subnormal in float16, and no scaler is in use.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class RayNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.ray, self.depth = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, x):
        h = self.enc(x)
        return self.ray(h), self.depth(h)


model = RayNet()
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=HEALTHY)
w = torch.randn(16, 3)
for step in range(100):
    x = torch.randn(256, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        ray, depth = model(x)
        cos = nn.functional.cosine_similarity(ray.float(), x @ w, dim=1)
        loss = 3e-6 * (1 - cos).mean() + 3e-6 * ((depth.float()[:, 0] - x[:, 0]) ** 2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    zero = sum((p.grad == 0).sum().item() for p in model.enc.parameters()) / sum(p.numel() for p in model.enc.parameters())
    scaler.step(opt)
    scaler.update()
print(f"loss {loss.item():.3e} share of zero gradients in the encoder {zero:.2f}")
