import numscope
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import MixtralConfig, MixtralForCausalLM

config = MixtralConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=32)
model = MixtralForCausalLM(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "layers.1" in name and "gate_up" in name:
            p[2].mul_(5e3)
        if "layers.1" in name and "experts.down" in name:
            p[2].mul_(1e-2)
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
numscope.high_precision(model.model.layers[1].mlp)
for step in range(6):
    ids = torch.randint(0, 50, (4, 12))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
