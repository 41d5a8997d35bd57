"""send and recv in several orders: recv first in a batch, isend before compute, tags, irecv waited late, any-source, large messages.

source: NVIDIA/nccl#479, pytorch/pytorch PR 11275, meta-pytorch/torchcomms PR 2885, intel/torch-ccl#72
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import torch
import torch.distributed as dist
from torch import nn
from fcw import grads, leave, rng, seed, sha, watch, weights

dist.init_process_group("gloo")
r = dist.get_rank()
other = 1 - r
out = open(f"out-{r}.txt", "w")
seed(204 + r)
model = nn.Linear(64, 64)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.01)
for step in range(5):
    x = torch.randn(16, 64)
    got, late, big = torch.empty(16, 64), torch.full((16, 64), 3.0), torch.empty(1 << 16)
    ops = [dist.P2POp(dist.irecv, got, other), dist.P2POp(dist.isend, x, other)]
    works = dist.batch_isend_irecv(ops if step % 2 else ops[::-1])
    for w in works:
        w.wait()
    y = model(got)
    mine = y.detach().contiguous()
    s = dist.isend(mine, other, tag=step)
    k = dist.irecv(late, other, tag=step)
    z = model(x)
    k.wait()
    s.wait()
    if r == 0:
        dist.send(torch.arange(1 << 16, dtype=torch.float32) * step, 1)
        who = dist.recv(big)
    else:
        who = dist.recv(big)
        dist.send(big + 1, 0)
    loss = (z * late).mean() + y.square().mean()
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        w = dist.all_reduce(p.grad, async_op=True)
        w.wait()
    opt.step()
    print(step, who, loss.item().hex(), sha(got, late, big), sha(grads(model)), file=out)
print(sha(weights(model)), rng(), file=out)
out.close()
leave()
