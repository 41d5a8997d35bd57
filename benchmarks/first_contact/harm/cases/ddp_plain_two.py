"""DDP on two ranks: accumulation with no_sync, unused parameters, a comm hook, buffers, uneven inputs with join.

source: pytorch/pytorch#146565, pytorch/pytorch PR 107323; pytorch docs DDP Join
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from fcw import grads, leave, rng, seed, sha, watch, weights

dist.init_process_group("gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
seed(200)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.bn, self.b, self.unused = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 2), nn.Linear(3, 3)

    def forward(self, x, far=False):
        h = self.bn(self.a(x)).relu()
        return self.b(h) + (self.unused(x[:, :3]).sum() * 0.01 if far else 0)


net = DDP(Net(), find_unused_parameters=True)
watch(net)
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
seed(10 + r)
for step in range(6):
    opt.zero_grad()
    if step % 2:
        with net.no_sync():
            net(torch.randn(4, 6)).square().mean().backward()
    loss = net(torch.randn(4, 6), far=step > 3).square().mean()
    loss.backward()
    opt.step()
    print(step, loss.item().hex(), sha(grads(net)), file=out)


def halve(state, bucket):
    t = bucket.buffer().div_(4)
    return dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0])


other = DDP(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)), gradient_as_bucket_view=True)
other.register_comm_hook(None, halve)
watch(other)
opt = torch.optim.Adam(other.parameters(), 1e-2)
for step in range(4):
    opt.zero_grad()
    other(torch.randn(3, 6)).square().mean().backward()
    opt.step()
    print(sha(grads(other)), file=out)
third = DDP(nn.Linear(6, 1))
watch(third)
opt = torch.optim.SGD(third.parameters(), 0.01)
with Join([third]):
    for step in range(3 + 2 * r):
        opt.zero_grad()
        third(torch.randn(3, 6)).square().mean().backward()
        opt.step()
print(sha(weights(net), weights(other), weights(third)), rng(), file=out)
out.close()
leave()
