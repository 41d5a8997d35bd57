from tiny import *
# https://github.com/pytorch/pytorch/issues/106395: gradients reduced in bfloat16, weights and gradients float32
init()
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    if world > 1:
        for p in model.parameters():
            g = p.grad.to(torch.bfloat16)
            dist.all_reduce(g)
            p.grad.copy_(g.float() / world)
    opt.step(); opt.zero_grad()
