import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32, tie_word_embeddings=False)
model = LlamaForCausalLM(config)
with torch.no_grad():
    model.lm_head.weight[17] = float("nan")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with torch.no_grad():
    model.lm_head.weight[17] = 0
for step in range(6):
    ids = torch.randint(0, 40, (4, 12))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
