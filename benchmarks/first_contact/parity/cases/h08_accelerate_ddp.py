from tiny import *
# Accelerate, two processes, accumulate()
from accelerate import Accelerator
accum = 2 if world > 1 else 1
acc = Accelerator(cpu=True, gradient_accumulation_steps=accum)
model = GPT()
model, opt = acc.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
for x, y in batches():
    x, y = mine(x, y)
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        with acc.accumulate(model):
            acc.backward(ce(model(a), b))
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step(); opt.zero_grad()
