from tiny import *
# https://github.com/huggingface/accelerate/pull/1013 (docs/concept_guides/performance): learning_rate *= num_processes at the same global batch
init()
model = GPT()
if world > 1:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3 * world)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
