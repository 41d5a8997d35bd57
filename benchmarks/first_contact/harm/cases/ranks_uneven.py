"""Ranks that train different numbers of steps with gradients averaged by hand only at some, rank 1 leaves early, rank 0 evaluates alone.

source: facebookresearch e2eAIOK#197 style loops; NVIDIA/nccl#479
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 120}
"""
import time
import torch
import torch.distributed as dist
from fcw import mlp, rng, seed, sha, train, watch, weights

dist.init_process_group("gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
seed(206)
model = mlp()
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
seed(30 + r)
for step in range(3):
    print(train(model, opt, 2 + r), file=out)
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= 2
if r == 0:
    with torch.no_grad():
        print(sha(model(torch.ones(3, 8))), file=out)
    print(train(model, opt, 7), file=out)
print(sha(weights(model)), rng(), file=out)
dist.barrier()
time.sleep(1)
if r == 1:
    dist.destroy_process_group()
else:
    print(train(model, opt, 2), file=out)
    time.sleep(2)
    dist.destroy_process_group()
out.close()
