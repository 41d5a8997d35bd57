# what: 2 ranks local SGD: ranks train alone for a different number of steps and average weights by broadcast/all_reduce each round
# ranks: 2
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank(); model = net(r); W(model); opt = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9); out = []
for p in model.parameters(): dist.broadcast(p.data, 0)
for k in range(4):
    for s in range(2 + 3 * r):
        x, y = batch(100 * k + 10 * s + r); opt.zero_grad(); l = F.mse_loss(model(x), y); l.backward(); opt.step(); out.append(float(l.detach()).hex())
    for p in model.parameters(): dist.all_reduce(p.data); p.data.div_(2)
    if r == 1 and k == 2: opt = torch.optim.SGD(model.parameters(), lr=.01)
    store = dist.distributed_c10d._get_default_store(); store.add("round", 1); out.append(store.add("round", 0) >= 1)
dist.barrier(); open(f"rank{r}.txt", "w").write(f"{out} {M(model)} {R()}"); dist.destroy_process_group()
