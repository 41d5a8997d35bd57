import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import ViTConfig, ViTForImageClassification

config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=4, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = ViTForImageClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(8):
    images, labels = torch.rand(8, 3, 16, 16), torch.randint(0, 4, (8,))
    if step == 2:
        images[5, 1, 3, 3] = float("nan")
    loss = model(pixel_values=images, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
