"""GPT-2 (tiny configuration) in pure float16: the attention scores of large queries and keys overflow while it trains.
Source: huggingface/transformers#24638 ("the dot product of two vectors from query/key overflows the float16 dtype")."""
import sys, math
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(53)
CURED = "--cured" in sys.argv

config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
model = GPT2LMHeadModel(config)
with torch.no_grad():
    for block in model.transformer.h:  # a checkpoint with outlier features
        block.ln_1.weight.fill_(14.0)
        block.attn.c_attn.weight.mul_(16.0)
if not CURED:
    model = model.half()
opt = torch.optim.SGD(model.parameters(), lr=0.02)
losses = []
for step in range(16):
    ids = torch.randint(0, 64, (4, 24))
    logits = model(ids).logits  # FAULT
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    with torch.no_grad():
        for block in model.transformer.h:
            block.ln_1.weight.mul_(1.12)  # the warm restart's gain
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    losses.append(loss.item())
    print(step, losses[-1])
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
