"""transformers BERT and GPT-2 with padding masks, SDPA with -inf bias and one fully masked query row whose output is not used"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

from transformers import GPT2Config, GPT2LMHeadModel
net = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2)); q = nn.Linear(16, 16); opt = torch.optim.AdamW([*net.parameters(), *q.parameters()], 1e-3)
for step in range(22):
    ids = torch.randint(0, 40, (3, 8)); am = torch.ones(3, 8, dtype=torch.long); am[0, :3] = 0; lab = ids.masked_fill(am == 0, -100)
    out = net(input_ids=ids, attention_mask=am, labels=lab, output_hidden_states=True); h = q(out.hidden_states[-1])
    bias = torch.zeros(3, 8, 8).masked_fill(am[:, None] == 0, float("-inf")); bias[1, 5] = float("-inf")
    z = F.scaled_dot_product_attention(h, h, h, attn_mask=bias); loss = out.loss + 0.01 * z[:, 6:].pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), net, q)
