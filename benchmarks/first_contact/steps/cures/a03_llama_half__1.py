import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32)
model = LlamaForCausalLM(config)
with torch.no_grad():
    model.model.layers[0].mlp.gate_proj.weight.mul_(4e3)
    model.model.layers[0].mlp.up_proj.weight.mul_(4e3)
    model.model.layers[0].mlp.down_proj.weight.mul_(1e-2)
model.bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
for step in range(6):
    ids = torch.randint(0, 50, (4, 12))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
