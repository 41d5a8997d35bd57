# source: huggingface/transformers Llama float16 autocast down_proj overflow threads
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32))
with torch.no_grad():
    model.model.layers[1].mlp.up_proj.weight.mul_(20000)
    model.model.layers[1].mlp.down_proj.weight.mul_(20000)
model = model  # MODEL
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(9):
    x = torch.randint(0, 40, (3, 8))
    # BATCH 0: x
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(input_ids=x, labels=x).loss
    opt.zero_grad(); loss.backward(); opt.step()
