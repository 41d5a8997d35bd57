"""Gradient accumulation with a global token count that is 0: loss = sum / num_items_in_batch.
Source: nvidia-cosmos/cosmos-rl#155; the code is transformers' loss_utils."""
import sys
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    micro = []
    for _ in range(2):
        ids = torch.randint(64, (2, 10))
        labels = torch.full_like(ids, -100) if step == 2 else ids
        micro.append((ids, labels))
    items = sum((l[:, 1:] != -100).sum() for _, l in micro)
    if CURED:
        items = items.clamp(min=1)
    opt.zero_grad()
    for ids, labels in micro:
        loss = model(input_ids=ids, labels=labels, num_items_in_batch=items).loss  # CALLER
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    print(step, loss.item())
