# source: huggingface/transformers GPT-2/NeoX float16 attention overflow threads (#14521-like)
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=16, attn_implementation="eager", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
with torch.no_grad():
    model.transformer.h[1].attn.c_attn.weight[:, :32].mul_(3000)
model = model.to(torch.float16)  # MODEL
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(9):
    x = torch.randint(0, 40, (3, 8))
    # BATCH 0: x
    loss = model(input_ids=x, labels=x).loss
    opt.zero_grad(); loss.backward(); opt.step()
