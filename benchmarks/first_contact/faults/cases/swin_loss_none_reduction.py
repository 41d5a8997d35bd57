"""Losses without reduction, averaged by hand over the valid ones: sum / count with no valid sample, in a Swin classifier.
Source: lululxvi/deepxde#1338 (mean of an empty tensor), pytorch/pytorch#70348's discussion."""
import sys
import torch
from transformers import SwinConfig, SwinForImageClassification

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = SwinForImageClassification(SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=2, num_labels=3))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    logits = model(pixel_values=torch.randn(4, 3, 16, 16)).logits
    y = torch.randint(3, (4,))
    known = torch.ones(4, dtype=torch.bool) if step != 2 else torch.zeros(4, dtype=torch.bool)
    each = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    loss = (each * known).sum() / known.sum().clamp(min=1) if CURED else each[known].mean()  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
