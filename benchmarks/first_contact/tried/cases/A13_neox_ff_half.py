# source: EleutherAI/gpt-neox, huggingface/transformers#5651-like: the second matrix of the feed-forward overflows in float16
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16))
with torch.no_grad():
    model.gpt_neox.layers[1].mlp.dense_h_to_4h.weight.mul_(2000)
    model.gpt_neox.layers[1].mlp.dense_4h_to_h.weight.mul_(60000)
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(9):
    x = torch.randint(0, 40, (3, 8))
    # BATCH 0: x
    loss = model(input_ids=x, labels=x).loss
    opt.zero_grad(); loss.backward(); opt.step()
