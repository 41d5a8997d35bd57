from tiny import *
# https://github.com/kohya-ss/sd-scripts/pull/989 in spirit: a head left out of DDP's reduction (_set_params_and_buffers_to_ignore_for_model)
init()
model = GPT()
if world > 1:
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["head.weight"])
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    opt.step(); opt.zero_grad()
