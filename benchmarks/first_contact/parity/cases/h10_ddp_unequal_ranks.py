from tiny import *
# DDP with 5 and 3 samples on the ranks, each loss weighted by its share times the world size
init()
model = GPT()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    n = len(x)
    if world > 1:
        x, y = x.split([5, 3])[rank], y.split([5, 3])[rank]
    (ce(model(x), y) * world * len(x) / n).backward()
    opt.step(); opt.zero_grad()
