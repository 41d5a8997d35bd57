from tiny import *
# https://github.com/huggingface/trl/issues/7245, https://github.com/OpenTSLM/OpenTSLM/pull/49: the loss runs on the unwrapped model
init()
model = GPT()
ddp = nn.parallel.DistributedDataParallel(model) if world > 1 else model
opt = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    ce(ddp.module(x) if world > 1 else ddp(x), y).backward()
    opt.step(); opt.zero_grad()
