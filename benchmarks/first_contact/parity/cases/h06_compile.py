from tiny import *
# torch.compile against eager
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
run = torch.compile(model, backend="aot_eager") if B else model
for x, y in batches():
    ce(run(x), y).backward()
    opt.step(); opt.zero_grad()
