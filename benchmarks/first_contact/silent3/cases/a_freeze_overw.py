"""Layers to be frozen are frozen first; the loop that builds the parameter groups sets requires_grad = True for all.
Source: https://github.com/ultralytics/yolov5/issues/1213
Truth: the "frozen" layers are trained.
Could a tool know: no: what a user wanted frozen is not in the final state (partly: requires_grad went False and True before the first step).
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class Yolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.ModuleList([nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 5, 1)])

    def forward(self, x):
        for i, m in enumerate(self.model):
            x = m(x)
            if i in (1, 2):
                x = torch.relu(x)
        return x.mean((2, 3))


model = Yolo()
before = model.model[0].weight.detach().clone()
freeze = ["model.0.", "model.1."]
for k, v in model.named_parameters():
    if any(k.startswith(f) for f in freeze):
        v.requires_grad = False
if HEALTHY:
    model.model[1].eval()
pg0, pg1, pg2 = [], [], []
for k, v in model.named_parameters():
    if not HEALTHY:
        v.requires_grad = True
    if not v.requires_grad:
        continue
    (pg2 if k.endswith("bias") else pg1 if v.ndim > 1 else pg0).append(v)
opt = torch.optim.SGD([{"params": g} for g in (pg0, pg1, pg2) if g], lr=0.02, momentum=0.9)
protos = torch.randn(5, 1, 8, 8)
for step in range(120):
    y = torch.randint(0, 5, (16,))
    loss = nn.functional.cross_entropy(model(protos[y] + 0.4 * torch.randn(16, 1, 8, 8)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} frozen layer moved {(model.model[0].weight - before).abs().max():.2e}")
