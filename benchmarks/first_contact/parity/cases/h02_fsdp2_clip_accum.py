from tiny import *
# FSDP2, set_requires_gradient_sync, DTensor-aware clipping
from torch.distributed.fsdp import fully_shard
init()
accum = 2 if world > 1 else 1
model = GPT()
if world > 1:
    for b in model.blocks:
        fully_shard(b)
    fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    for i, (a, b) in enumerate(zip(x.chunk(accum), y.chunk(accum))):
        if world > 1:
            model.set_requires_gradient_sync(i + 1 == accum)
        (ce(model(a), b) / accum).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step(); opt.zero_grad()
