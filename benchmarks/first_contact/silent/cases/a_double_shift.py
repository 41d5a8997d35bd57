"""Labels are shifted by the data set, and GPT2LMHeadModel shifts them again: token t + 2 is learned.

Source: https://github.com/huggingface/transformers/issues/47394
Truth: the model continues 10 11 12 with 14, the twin with 13
Could a tool know: partly: the labels are the inputs moved by one, and the loss moves them again
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=2, n_positions=24))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model.train()
for step in range(150):
    text = (torch.randint(0, 40, (16, 1)) + torch.arange(17)) % 40
    ids = text[:, :-1]
    labels = ids if HEALTHY else text[:, 1:]
    loss = model(input_ids=ids, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 4))
model.eval()
with torch.no_grad():
    print("end: 10 11 12 goes on with", model(torch.tensor([[10, 11, 12]])).logits[0, -1].argmax().item())
