"""Healthy: a GPT-2 of a tiny configuration with tied weights, lower block frozen for 150 steps, then unfrozen; linear warm-up and decay,
accumulation over an uneven last batch.  300 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup
m = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)); m.train(); m.transformer.h[0].requires_grad_(False)
opt = torch.optim.AdamW(m.parameters(), 2e-3); sch = get_linear_schedule_with_warmup(opt, 30, 300)
for step in range(300):
    if step == 150: m.transformer.h[0].requires_grad_(True)
    sizes = (8, 8, 3); total = sum(sizes) * 11
    for n in sizes:
        ids = (torch.randint(0, 40, (n, 1)) + torch.randint(1, 3, (n, 1)) * torch.arange(12)) % 40; lo = m(input_ids=ids).logits; loss = F.cross_entropy(lo[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum") / total; loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.); opt.step(); sch.step(); opt.zero_grad()
    if step % 50 == 0: print(step, loss.item() * total / (3 * 11))
