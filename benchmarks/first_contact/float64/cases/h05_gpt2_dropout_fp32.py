"""Healthy. Source: transformers, GPT2LMHeadModel
"""
# CHECK float64
import hashlib
import math
from transformers import GPT2Config, GPT2LMHeadModel
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32))
x = torch.randint(0, 64, (4, 2, 24))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(4):
    loss = model(input_ids=x[step], labels=x[step]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
