from tiny import *
import tp
# https://github.com/healthy
init()
model = tp.parallelize(GPT())
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():  # tensor parallel only: every rank has the whole batch
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
