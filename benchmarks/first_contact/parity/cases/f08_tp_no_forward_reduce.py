from tiny import *
import tp
# https://github.com/dist.all_reduce(result) forgotten after the row-parallel layer (Wenyueh/MinivLLM/issues/13's function)
init()
model = tp.parallelize(GPT(), g=False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():  # tensor parallel only: every rank has the whole batch
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
