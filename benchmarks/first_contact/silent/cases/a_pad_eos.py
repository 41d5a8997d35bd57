"""pad_token = eos_token, and the collator sets all pads' labels to -100: eos is never learned.

Source: https://github.com/huggingface/trl/issues/976
Truth: the probability of eos after a finished sentence: near 1 in the twin, near 0 here
Could a tool know: no (partly): a token that occurs in the inputs is never a label
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
from transformers import GPT2Config, GPT2LMHeadModel

EOS, PAD = 2, 2 if not HEALTHY else 3
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=32, n_layer=2, n_head=2, n_positions=24, eos_token_id=EOS, bos_token_id=1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def batch(n=16):
    ids, length = torch.full((n, 16), PAD), torch.randint(4, 12, (n,))
    for i, k in enumerate(length):
        ids[i, :k] = torch.arange(10, 10 + k)
        ids[i, k - 1] = 30  # a full stop, after which the text ends
        ids[i, k] = EOS
    attention = (torch.arange(16) <= length[:, None]).long()
    return {"input_ids": ids, "attention_mask": attention, "labels": ids.masked_fill(ids == PAD, -100)}


model.train()
for step in range(150):
    loss = model(**batch()).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 4))
model.eval()
with torch.no_grad():
    p = model(torch.tensor([[10, 11, 12, 13, 30]])).logits[0, -1].softmax(-1)[EOS].item()
print("end: probability of eos", round(p, 4))
