from tiny import *
# https://github.com/karpathy/nanoGPT/issues/168: the loss isn't divided by the accumulation steps
accum = 4 if B else 1
model = GPT()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        ce(model(a), b).backward()  # should be / accum
    opt.step(); opt.zero_grad()
