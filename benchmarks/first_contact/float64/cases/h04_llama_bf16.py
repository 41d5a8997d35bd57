"""Healthy. Source: transformers, LlamaForCausalLM from a tiny configuration, pure bfloat16
"""
# CHECK float64
import hashlib
import math
from transformers import LlamaConfig, LlamaForCausalLM
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(config).bfloat16()
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
