from _training import *
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank()
x, y = blobs(2000, s=2., seed=1 + r); net = nn.parallel.DistributedDataParallel(mlp(16, 32, 4))
opt = torch.optim.SGD(net.parameters(), .1); sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=.5, patience=1)
for epoch in range(15):
    tot = torch.zeros(1)
    for _ in range(15):
        i = torch.randint(2000, (32,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step(); tot += loss.detach()
    if H: dist.all_reduce(tot)
    sched.step(tot.item())
g = [torch.zeros(2) for _ in range(2)]; dist.all_gather(g, torch.tensor([opt.param_groups[0]["lr"], net.module[0].weight.sum().item()]))
if r == 0: truth(lr_difference=abs(g[0][0] - g[1][0]).item(), weight_difference=abs(g[0][1] - g[1][1]).item())
dist.destroy_process_group()
