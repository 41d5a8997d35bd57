import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/huggingface/transformers/issues/27179
from transformers import LlamaConfig, LlamaForCausalLM
cfg = LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(cfg)
with torch.no_grad():
    m = model.model.layers[1].mlp
    d = torch.randn(32); d /= d.norm(); m.gate_proj.weight += 50 * torch.outer(torch.ones(64), d); m.up_proj.weight += 50 * torch.outer(torch.ones(64), d)
    model.model.embed_tokens.weight[99] = 40 * d      # the BOS-like token that excites the direction
model = model.half().train()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
import numscope
numscope.high_precision(model.model.layers[1].mlp)
for step in range(10):
    ids = torch.randint(0, 98, (4, 16))
    if step >= 6: ids[0, 0] = 99
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
