"""Llama with eager attention and an own 4-D mask of -inf: left padding leaves whole rows masked.
Source: huggingface/transformers#27179, pytorch/pytorch#103749."""
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM

CURED = "--cured" in sys.argv
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, attn_implementation="eager"))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(3, 64, (3, 8))
    pad = torch.ones(3, 8, dtype=torch.bool)
    if step == 1:
        pad[2, :3] = False  # left padding
    see = torch.tril(torch.ones(8, 8, dtype=torch.bool)) & pad[:, None, :]
    fill = torch.finfo(torch.float32).min if CURED else float("-inf")
    mask = torch.zeros(3, 1, 8, 8).masked_fill(~see[:, None], fill)
    labels = ids.masked_fill(~pad, -100)
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss  # CALLER
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
