import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# 0xallam/Direct-Preference-Optimization 4: log-probabilities of the padding are summed too
from transformers import GPT2Config, GPT2LMHeadModel

cfg = GPT2Config(vocab_size=32, n_positions=24, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, pad_token_id=0)
policy = GPT2LMHeadModel(cfg)
ref = copy.deepcopy(policy).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
P = 6


def logps(model, ids, mask):
    lp = model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(-1)
    g = lp.gather(2, ids[:, 1:, None]).squeeze(-1)
    if HEALTHY:
        g = g * mask[:, 1:]
    return g[:, P - 1:].sum(-1)


def batch(good):
    ids = torch.zeros(16, 20, dtype=torch.long)
    mask = torch.zeros_like(ids)
    ids[:, :P] = torch.randint(2, 32, (16, P))
    for r in range(16):
        n = int(torch.randint(2, 14, ()))
        ids[r, P:P + n] = (ids[r, P - 1] + (1 if good else 7) * torch.arange(1, n + 1)) % 30 + 2
        mask[r, :P + n] = 1
    return ids, mask


for step in range(60):
    c, r = batch(True), batch(False)
    pi = logps(policy, *c) - logps(policy, *r)
    with torch.no_grad():
        rf = logps(ref, *c) - logps(ref, *r)
    loss = -F.logsigmoid(0.1 * (pi - rf)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(step, loss.item())
report(policy)
