import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# trl 6357, mlabonne/llm-course 33: pad is eos, and all eos labels are ignored
from transformers import GPT2Config, GPT2LMHeadModel

EOS = 1
PAD = 1
cfg = GPT2Config(vocab_size=32, n_positions=24, n_embd=32, n_layer=2, n_head=2, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=0)
model = GPT2LMHeadModel(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(70):
    ids = torch.full((16, 20), PAD)
    mask = torch.zeros(16, 20, dtype=torch.long)
    for r in range(16):
        n = int(torch.randint(6, 19, ()))
        ids[r, :n] = (torch.arange(n) * 3 + int(torch.randint(30, ()))) % 30 + 2
        ids[r, n] = EOS
        mask[r, : n + 1] = 1
    labels = ids.clone()
    if HEALTHY:
        labels[mask == 0] = -100
    else:
        labels[ids == PAD] = -100
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(step, loss.item())
report(model)
