from tiny import *
import tp
# https://github.com/pytorch/pytorch/issues/72548, https://github.com/pytorch/pytorch/issues/170862: clip_grad_norm_ over a rank's own shards
init()
model = tp.parallelize(GPT())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches():
    ce(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step(); opt.zero_grad()
