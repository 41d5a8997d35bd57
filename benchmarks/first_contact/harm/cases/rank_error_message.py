r"""One rank raises its own error: torchrun's status, its summary's root cause and message, the error file's content.

source: pytorch/pytorch#60910 (CHILD PROCESS FAILED WITH NO ERROR_FILE), pytorch/pytorch PR 99051
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "expect_status": [1], "limit": 90, "shell": "TORCHELASTIC_ERROR_FILE= \"$@\" 2> >(grep -oE '(exitcode *: -?[0-9]+|ValueError: .*|traceback : .*)' | sed -E 's/(pid|local_rank).*//; s/\\(.*//' | sort -u > seen.txt); s=$?; sleep 0.5; exit $s"}
"""
import os
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from fcw import mlp, seed, sha, train, watch, weights


@record
def main():
    dist.init_process_group("gloo")
    r = dist.get_rank()
    seed(209 + r)
    model = mlp()
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    open(f"out-{r}.txt", "w").write(repr(train(model, opt, 3)))
    dist.barrier()
    if r == 1:
        raise ValueError("rank one gives up")
    import time

    time.sleep(60)


main()
