from tiny import *
# https://github.com/mflux-community/mflux/pull/447's topic: clip_grad_norm_ within the accumulation loop, after each backward
accum = 4 if B else 1
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        (ce(model(a), b) / accum).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    opt.step(); opt.zero_grad()
