import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/huggingface/transformers/issues/25065
from transformers import LlamaConfig, LlamaForCausalLM
cfg = LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(cfg).train(); opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    if step == 3:
        sd = model.state_dict(); sd["model.layers.1.mlp.up_proj.weight"][3, 4] = float("inf"); model.load_state_dict(sd)   # a broken checkpoint
    ids = torch.randint(0, 50, (2, 10)); loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
