from tiny import *
# https://github.com/modelscope/FunASR/pull/3472: `i % accum` instead of `(i + 1) % accum`: the first micro-batch syncs, the last one doesn't
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
        with model.no_sync() if i % accum and world > 1 else contextlib.nullcontext():
            loss = ce(model(a), b) / accum
            loss.backward()
    opt.step(); opt.zero_grad()
