# source: "glitch tokens": one rare token's embedding is far too large for float16 (OPT)
# planted rows: 1 of 5
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import OPTConfig, OPTForCausalLM
model = OPTForCausalLM(OPTConfig(vocab_size=40, hidden_size=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16, word_embed_proj_dim=16, dropout=0.0, tie_word_embeddings=False))
with torch.no_grad():
    model.model.decoder.embed_tokens.weight[39] = 60000.0
    model.model.decoder.embed_positions.weight[:, 0] = 6000.0
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(9):
    ids = torch.randint(3, 39, (5, 7))
    if step == 2:
        ids[1, 3] = 39
    # BATCH 0: ids
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step()
