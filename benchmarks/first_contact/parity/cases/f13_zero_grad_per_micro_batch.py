from tiny import *
# https://github.com/bytetriper/RAE/issues/67: zero_grad is called per micro-batch
accum = 2 if B else 1
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        opt.zero_grad(set_to_none=True)
        (ce(model(a), b) / accum).backward()
    opt.step()
