from tiny import *
# https://github.com/NVIDIA/Megatron-LM/issues/844's kind: after DDP the shared embedding's gradient is all-reduced once more
init()
model = GPT(tie=True)
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    if world > 1:
        dist.all_reduce(model.module.tok.weight.grad)
    opt.step(); opt.zero_grad()
