import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/karpathy/nanoGPT/issues/167
from transformers import GPT2Config, GPT2LMHeadModel
cfg = GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(cfg).train()
with torch.no_grad():
    model.transformer.h[1].mlp.c_fc.weight *= 300
    model.transformer.h[1].mlp.c_proj.weight *= 20000
    model.transformer.wte.weight[77] *= 4000      # a rare token
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(10):
    ids = torch.randint(0, 60, (4, 16))
    with torch.autocast("cpu", torch.float16):
        loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, repr(loss.item()))
