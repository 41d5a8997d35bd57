# source: huggingface/transformers resize_token_embeddings leaves new rows uninitialized (unslothai/unsloth#272, #237)
# planted: row 39 of transformer.wte.weight
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, n_positions=16, tie_word_embeddings=False))  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
with torch.no_grad():
    model.transformer.wte.weight[39] = float("nan")
# WEIGHT
for step in range(9):
    ids = torch.randint(0, 39, (4, 7))
    if step >= 2:
        ids[1, 3] = 39
    # BATCH 0: ids
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step()
