"""mp.spawn of two gloo ranks by a script (no torchrun), DDP, an exception of a rank as ProcessRaisedException in the parent.

source: pytorch/pytorch#50669, pytorch/pytorch#75147
meta: {"limit": 120, "compare": ["status", "stdout", "files", "left"]}
"""
import os
import re
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from fcw import grads, mlp, rng, say, seed, sha, watch, weights


def work(r, where, fails):
    dist.init_process_group("gloo", init_method="file://" + where, rank=r, world_size=2)
    seed(212)
    model = DDP(mlp())
    watch(model)
    opt = torch.optim.AdamW(model.parameters(), 1e-2)
    seed(40 + r)
    with open(f"out-{r}-{fails}.txt", "w") as out:
        for step in range(4):
            loss = model(torch.randn(4, 8)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(loss.item().hex(), sha(grads(model)), file=out)
        print(sha(weights(model)), rng(), file=out)
    dist.barrier()
    if fails and r == 1:
        raise KeyError("of rank 1")
    dist.destroy_process_group()


if __name__ == "__main__":
    seed(1)
    for fails in (False, True):
        where = os.path.abspath(f"meet-{fails}")
        try:
            mp.spawn(work, (where, fails), 2)
            say("joined")
        except mp.ProcessRaisedException as e:
            say(type(e).__name__, e.error_index, re.findall(r"KeyError.*", str(e))[-1:])
        os.path.exists(where) and os.remove(where)
    say(rng(), mp.active_children())
