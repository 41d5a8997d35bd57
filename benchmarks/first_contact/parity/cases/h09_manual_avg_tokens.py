from tiny import *
# hand all-reduce, token-weighted over ranks and micro-batches
init()
accum = 2 if world > 1 else 1
model = GPT()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for x, y in batches(ragged=True):
    total = (y != -100).sum()
    x, y = mine(x, y)
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        (ce(model(a), b, "sum") / total).backward()
    if world > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
    opt.step(); opt.zero_grad()
