"""DINO: the teacher's temperature schedule starts at 0 by a wrong warm-up, and logits / 0 are inf.
Source: facebookresearch/dino#58, #97, bytedance/ibot#19 (nan by the teacher's temperature)."""
import sys
import copy
import torch
from torch import nn
import timm

CURED = "--cured" in sys.argv
torch.manual_seed(0)
student = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2, num_classes=16)
teacher = copy.deepcopy(student).requires_grad_(False)
center = torch.zeros(1, 16)
temps = torch.linspace(0.02 if CURED else 0.0, 0.07, 4)
opt = torch.optim.AdamW(student.parameters(), lr=5e-4)
for step in range(3):
    a, b = torch.randn(2, 4, 3, 32, 32)
    with torch.no_grad():
        out = teacher(a)
        sharp = (out - center) / temps[step]  # FAULT
        q = sharp.softmax(-1)
        center = 0.9 * center + 0.1 * out.mean(0, keepdim=True)
    loss = -(q * (student(b) / 0.1).log_softmax(-1)).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, s in zip(teacher.parameters(), student.parameters()):
            p.lerp_(s, 0.01)
    print(step, loss.item())
