"""GPT-2 trains and samples in between with top-k and top-p filters that write -inf into logits.
Source: karpathy/minGPT and nanoGPT generate() (logits[logits < v] = -Inf)."""
import math, torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
torch.set_num_threads(1)
torch.manual_seed(2)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=32, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)


@torch.no_grad()
def sample(n=8, k=5, top_p=0.9):
    model.eval()
    ids = torch.zeros(2, 1, dtype=torch.long)
    for _ in range(n):
        logits = model(ids).logits[:, -1] / 0.8
        logits[logits < logits.topk(k)[0][:, -1:]] = -float("inf")
        probs, order = logits.softmax(-1).sort(descending=True)
        drop = probs.cumsum(-1) - probs > top_p
        logits = logits.scatter(1, order, logits.gather(1, order).masked_fill(drop, float("-inf")))
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
    model.train()
    return ids


losses = []
for step in range(30):
    start = torch.randint(0, 32, (8, 1))
    ids = (start + torch.arange(12)) % 32
    loss = model(ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 10 == 9:
        print(sample().tolist())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
