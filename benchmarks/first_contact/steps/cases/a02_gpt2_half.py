import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=3, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager")
model = GPT2LMHeadModel(config)
with torch.no_grad():
    model.transformer.h[1].mlp.c_fc.weight.mul_(7e5)
    model.transformer.h[1].mlp.c_proj.weight.mul_(1e-2)
model = model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(6):
    ids = torch.randint(0, 50, (4, 12))
    loss = model(ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
