"""Healthy. Source: transformers, MixtralForCausalLM from a tiny configuration
"""
# CHECK float64
import hashlib
import math
from transformers import MixtralConfig, MixtralForCausalLM
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
config = MixtralConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
model = MixtralForCausalLM(config)
x = torch.randint(0, 64, (4, 2, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(4):
    loss = model(input_ids=x[step], labels=x[step]).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
