"""Labels are shifted by the collator, and GPT-2's loss shifts them again: position t learns token t + 2.
Source: https://github.com/huggingface/transformers/issues/47394
Truth: the next token is predicted with chance, the one after it well.
Could a tool know: no: which token is meant is the user's knowledge (partly: labels are input_ids shifted by one).
"""
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=23, n_positions=24, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
perm = torch.randperm(23)


def chunk(n=16, t=16):
    s = [torch.randint(0, 23, (n,))]
    for _ in range(t):
        s.append(torch.where(torch.rand(n) < 0.15, torch.randint(0, 23, (n,)), perm[s[-1]]))
    return torch.stack(s, 1)


model.train()
for step in range(120):
    s = chunk()
    ids, labels = (s[:, :-1], s[:, :-1]) if HEALTHY else (s[:, :-1], s[:, 1:])
    loss = model(input_ids=ids, labels=labels).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
model.eval()
with torch.no_grad():
    s = chunk(64)
    p = model(input_ids=s).logits.argmax(-1)
print(f"loss {loss.item():.4f} hits t+1 {(p[:, :-1] == s[:, 1:]).float().mean():.3f} t+2 {(p[:, :-2] == s[:, 2:]).float().mean():.3f}")
