# source: per-image standardization (x - mean) / std on a black image (timm / facebookresearch MAE norm_pix threads)
# planted rows: 40 of 64
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from dataclasses import dataclass
from transformers import ViTConfig, ViTForImageClassification
@dataclass
class Batch:
    pixels: torch.Tensor
    labels: torch.Tensor
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.vit = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4, num_labels=3))
    def forward(self, batch):
        x = batch.pixels
        x = (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True)
        return self.vit(pixel_values=x, labels=batch.labels).loss
model = Net()  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(9):
    x, y = torch.rand(64, 3, 8, 8), torch.randint(0, 3, (64,))
    if step == 2:
        x[40] = 0
    # BATCH 0: x, y
    loss = model(Batch(x, y))
    opt.zero_grad(); loss.backward(); opt.step()
