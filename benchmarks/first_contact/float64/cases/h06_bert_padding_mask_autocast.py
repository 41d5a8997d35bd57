"""Healthy. Source: transformers, BertForSequenceClassification with padded batches
"""
# CHECK float64
import hashlib
import math
from transformers import BertConfig, BertForSequenceClassification
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64))
x, y = torch.randint(0, 64, (4, 4, 20)), torch.randint(0, 2, (4, 4))
mask = (torch.arange(20)[None] < torch.tensor([20, 12, 7, 3])[:, None]).long()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=x[step], attention_mask=mask, labels=y[step]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
