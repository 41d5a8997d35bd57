from tiny import *
# https://github.com/huggingface/transformers/issues/34579, pull/34373: each rank's own token mean, averaged by DDP, at unequal token counts
init()
model = GPT()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches(ragged=True):
    x, y = mine(x, y)
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
