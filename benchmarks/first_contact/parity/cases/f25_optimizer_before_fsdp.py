from tiny import *
# https://github.com/huggingface/accelerate/issues/3256, https://github.com/intelligent-machine-learning/dlrover/pull/585: the optimizer holds the parameters of before fully_shard
from torch.distributed.fsdp import fully_shard
init()
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
if world > 1:
    for b in model.blocks:
        fully_shard(b)
    fully_shard(model)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad(); model.zero_grad()
