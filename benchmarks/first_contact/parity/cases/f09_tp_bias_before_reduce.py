from tiny import *
import tp
# https://github.com/Wenyueh/MinivLLM/issues/80, huggingface/text-generation-inference/issues/1036: bias added on each rank before the sum
init()
model = tp.parallelize(GPT(), bias_before=True)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():  # tensor parallel only: every rank has the whole batch
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
