from _training import *
import torch.distributed as dist
dist.init_process_group("gloo"); r = dist.get_rank()
net = mlp(16, 32, 4); opt = torch.optim.SGD(net.parameters(), .1)
x, y = blobs(2000, s=2.); torch.manual_seed(r); ratio = []
if r == 1: y = y.roll(1) if False else y; x = x * 5
for step in range(150):
    i = torch.randint(2000, (32,)); loss = F.cross_entropy(net(x[i]), y[i]); opt.zero_grad(); loss.backward()
    if not H: nn.utils.clip_grad_norm_(net.parameters(), .5)
    for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= 2
    if H: nn.utils.clip_grad_norm_(net.parameters(), .5)
    ratio.append(sum(p.grad.norm() ** 2 for p in net.parameters()).sqrt().item()); opt.step()
if r == 0: truth(mean_norm_stepped=sum(ratio) / len(ratio), loss=loss.item())
dist.destroy_process_group()
