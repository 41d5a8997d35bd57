from tiny import *
# no DistributedSampler: https://discuss.pytorch.org, "DDP without DistributedSampler": every rank takes the first half of the batch
init()
model = GPT()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = x.chunk(world)[0], y.chunk(world)[0]
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
