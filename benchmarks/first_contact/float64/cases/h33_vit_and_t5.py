"""Healthy. Source: transformers, ViT and T5 from tiny configurations, one after the other in a script
"""
# CHECK float64
import hashlib
import math
from transformers import T5Config, T5ForConditionalGeneration, ViTConfig, ViTForImageClassification
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
vit = ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64))
t5 = T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0))
for model, make in ((vit, lambda: dict(pixel_values=torch.randn(3, 3, 16, 16), labels=torch.randint(0, 2, (3,)))), (t5, lambda: dict(input_ids=torch.randint(2, 64, (2, 12)), labels=torch.randint(2, 64, (2, 8))))):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(4):
        loss = model(**make()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [vit, t5] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
