"""destroy_process_group and init again in mid-run, with stores of its own and swapped ranks, under the same models.

source: pytorch/pytorch#76198
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90, "ignore": ["store*"]}
"""
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from fcw import grads, leave, mlp, rng, seed, sha, watch, weights

r = int(os.environ["RANK"])
out = open(f"out-{r}.txt", "w")
seed(207)
inner = mlp()
for life in range(3):
    me = 1 - r if life == 1 else r
    dist.init_process_group("gloo", store=dist.FileStore(os.path.abspath(f"store{life}"), 2), rank=me, world_size=2)
    model = DDP(inner)
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    seed(dist.get_rank() + life)
    for step in range(3):
        loss = model(torch.randn(4, 8)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(life, dist.get_rank(), loss.item().hex(), sha(grads(inner)), file=out)
    del model
    leave()
print(sha(weights(inner)), rng(), dist.is_initialized(), file=out)
out.close()
