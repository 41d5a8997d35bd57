# source: float16 embeddings of added tokens (LLaMA) with enormous values
# planted: rows 30, 31 of model.embed_tokens.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False))
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
with torch.no_grad():
    model.model.embed_tokens.weight[[30, 31]] = float("inf")
# WEIGHT
for step in range(9):
    ids = torch.randint(0, 30, (3, 8))
    if step >= 2:
        ids[0, 2], ids[2, 5] = 30, 31
    # BATCH 0: ids
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step()
