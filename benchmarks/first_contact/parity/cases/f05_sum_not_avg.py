from tiny import *
# PyTorch's "Writing Distributed Applications" tutorial without its `/= size`: manual all_reduce SUM
init()
model = GPT()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for x, y in batches():
    x, y = mine(x, y)
    ce(model(x), y).backward()
    if world > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
    opt.step(); opt.zero_grad()
