import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/AUTOMATIC1111/stable-diffusion-webui/pull/6510
from transformers import ViTConfig, ViTForImageClassification
cfg = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=4, num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = ViTForImageClassification(cfg)
with torch.no_grad():
    model.vit.embeddings.patch_embeddings.projection.weight *= 30
model = model.half().train()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(8):
    x = torch.rand(4, 3, 16, 16) * (255 if step < 4 else 65000); y = torch.randint(0, 5, (4,))   # 8 bit, then 16 bit images
    loss = model(pixel_values=x.half(), labels=y).loss
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
