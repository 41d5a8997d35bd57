import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# transformers 47394 / 32944: the script shifts the labels, the model shifts them again
from transformers import GPT2Config, GPT2LMHeadModel

cfg = GPT2Config(vocab_size=32, n_positions=33, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
table = torch.randperm(32)
for step in range(80):
    tok = torch.randint(32, (16, 1))
    seq = [tok]
    for _ in range(32):
        noise = torch.randint(32, tok.shape)
        tok = torch.where(torch.rand(tok.shape) < 0.8, table[tok], noise)
        seq.append(tok)
    data = torch.cat(seq, 1)
    if HEALTHY:
        out = model(input_ids=data[:, :-1], labels=data[:, :-1].clone())
    else:
        out = model(input_ids=data[:, :-1], labels=data[:, 1:].clone())
    out.loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(step, out.loss.item())
report(model)
