"""Causal LM: one batch whose labels are all -100 (every sample is a prompt longer than the context).
Source: pytorch/pytorch#70348, OpenRLHF/OpenRLHF#583, nvidia-cosmos/cosmos-rl#155."""
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=80, n_positions=24, n_embd=16, n_layer=2, n_head=2))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(80, (2, 12))
    labels = ids.clone()
    labels[:, :4] = -100
    if step == 2:
        labels[:] = -100
        if CURED:
            continue
    loss = model(input_ids=ids, labels=labels).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
