import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = GPT2LMHeadModel(config)
with torch.no_grad():
    model.transformer.wpe.weight[12:] = float("nan")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with torch.no_grad():
    model.transformer.wpe.weight[[12, 13, 14, 15]] = 0
for step in range(8):
    ids = torch.randint(0, 50, (4, 10 if step < 2 else 14))
    loss = model(ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
