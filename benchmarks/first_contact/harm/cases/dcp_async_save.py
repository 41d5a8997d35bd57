"""Distributed checkpoint saves, one of them async, in mid-run, loaded again into a fresh model and trained on.

source: ByteDance-Seed/VeOmni PR 1085 (checkpoint-safe); pytorch docs DCP
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90, "ignore": ["ckpt*/*.distcp", "ckpt*/.metadata"]}
"""
import warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from fcw import leave, mlp, rng, seed, sha, watch

dist.init_process_group("cpu:gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
mesh = init_device_mesh("cpu", (2,))
own = dist.new_group()


def make():
    m = mlp()
    for part in (m[0], m[2]):
        fully_shard(part, mesh=mesh)
    fully_shard(m, mesh=mesh)
    watch(m)
    return m, torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)


def steps(m, o, n):
    for i in range(n):
        loss = m(torch.randn(4, 8)).square().mean()
        o.zero_grad()
        loss.backward()
        o.step()
        print(loss.item().hex(), file=out)


seed(215)
model, opt = make()
seed(60 + r)
steps(model, opt, 2)
dcp.save({"model": model.state_dict()}, checkpoint_id="ckpt1")
steps(model, opt, 1)
future = dcp.async_save({"model": model.state_dict()}, checkpoint_id="ckpt2", process_group=own)
steps(model, opt, 2)
future.result()
seed(7)
fresh, opt2 = make()
state = {"model": fresh.state_dict()}
dcp.load(state, checkpoint_id="ckpt2")
fresh.load_state_dict(state["model"])
print(sha(list(fresh.state_dict().values())), sha(list(model.state_dict().values())), rng(), file=out)
seed(60 + r)
steps(fresh, opt2, 2)
out.close()
leave()
