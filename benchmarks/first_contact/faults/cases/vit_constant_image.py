"""Per-image standardisation before a ViT: a black frame has standard deviation 0.
Source: yxlu-0102/MP-SENet#33, bshall/hifigan#4 (the same with silent audio)."""
import sys
import torch
from transformers import ViTConfig, ViTForImageClassification

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4, num_labels=3))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)


def whiten(images):
    mean = images.mean((1, 2, 3), keepdim=True)
    std = images.std((1, 2, 3), keepdim=True)
    if CURED:
        std = std.clamp(min=1e-3)
    return (images - mean) / std  # FAULT


for step in range(4):
    images = torch.rand(4, 3, 16, 16)
    if step == 2:
        images[1] = 0
    out = model(pixel_values=whiten(images), labels=torch.randint(3, (4,)))
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print(step, out.loss.item())
