import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# alpaca-lora 315, transformers 33095: left padding without position_ids
from transformers import GPT2Config, GPT2LMHeadModel

cfg = GPT2Config(vocab_size=32, n_positions=24, n_embd=32, n_layer=2, n_head=2, pad_token_id=0, eos_token_id=1, bos_token_id=1)
model = GPT2LMHeadModel(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(70):
    ids = torch.zeros(16, 20, dtype=torch.long)
    mask = torch.zeros(16, 20, dtype=torch.long)
    for r in range(16):
        n = int(torch.randint(6, 19, ()))
        ids[r, -n:] = (torch.arange(n) ** 2 + int(torch.randint(30, ()))) % 30 + 2
        mask[r, -n:] = 1
    labels = ids.masked_fill(mask == 0, -100)
    extra = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if HEALTHY else {}
    loss = model(input_ids=ids, attention_mask=mask, labels=labels, **extra).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(step, loss.item())
report(model)
