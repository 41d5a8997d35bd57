from tiny import *
# DDP with accumulation and a right no_sync, clipping, AdamW
import contextlib
init()
accum = 2 if world > 1 else 1
model = GPT()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    for i, (a, b) in enumerate(zip(x.chunk(accum), y.chunk(accum))):
        with model.no_sync() if i + 1 < accum else contextlib.nullcontext():
            loss = ce(model(a), b) / accum
            loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step(); opt.zero_grad()
