from tiny import *
# accelerate's accumulate() with the loop's own division kept (accelerate docs, "gradient accumulation": remove it): the loss is divided twice
from accelerate import Accelerator
accum = 4 if B else 1
acc = Accelerator(cpu=True, gradient_accumulation_steps=accum)
model = GPT()
model, opt = acc.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
for x, y in batches():
    for a, b in zip(x.chunk(accum), y.chunk(accum)):
        with acc.accumulate(model):
            acc.backward(ce(model(a), b) / accum)
            opt.step(); opt.zero_grad()
