import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# CosyVoice 1449: the mask is true where labels are to be ignored, and multiplies the log-probabilities
from transformers import GPT2Config, GPT2LMHeadModel

cfg = GPT2Config(vocab_size=32, n_positions=24, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
policy = GPT2LMHeadModel(cfg)
ref = copy.deepcopy(policy).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
IGN = -100


def logps(model, ids, labels):
    lp = model(ids).logits[:, :-1].log_softmax(-1)
    t = labels[:, 1:]
    mask = t != IGN if HEALTHY else t == IGN
    g = lp.gather(2, t.masked_fill(t == IGN, 0).unsqueeze(-1)).squeeze(-1)
    return (g * mask).sum(-1) / mask.sum(-1)


def batch(good):
    prompt = torch.randint(2, 32, (16, 6))
    n = 10
    resp = (prompt[:, -1:] + (1 if good else 7) * torch.arange(1, n + 1)) % 30 + 2
    pad = torch.zeros(16, 4, dtype=torch.long)
    ids = torch.cat([prompt, resp, pad], 1)
    lab = torch.cat([torch.full_like(prompt, IGN), resp, torch.full_like(pad, IGN)], 1)
    return ids, lab


for step in range(60):
    c, r = batch(True), batch(False)
    pi = logps(policy, *c) - logps(policy, *r)
    with torch.no_grad():
        rf = logps(ref, *c) - logps(ref, *r)
    loss = -F.logsigmoid(0.5 * (pi - rf)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(step, loss.item())
report(policy)
