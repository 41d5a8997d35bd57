"""torchrun -m package under the tool: argv, path and __main__ of a rank, local rank, stdin closed, same files.

source: pytorch/pytorch PR 29144
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "setup": "mkdir -p job; touch job/__init__.py; cp nested_torchrun_module.py job/fit.py", "script": ["-m", "job.fit"], "args": ["--lr", "0.1", "-m", "--nproc-per-node"], "limit": 90}
"""
import os
import sys
import torch
import torch.distributed as dist
from fcw import leave, mlp, seed, sha, train, watch, weights

dist.init_process_group("gloo")
r = dist.get_rank()
seed(213 + r)
model = mlp()
watch(model)
with open(f"out-{r}.txt", "w") as out:
    print(sys.argv[1:], os.path.basename(sys.argv[0]), __name__, __package__, __spec__ and __spec__.name, train(model, torch.optim.SGD(model.parameters(), 0.1), 3), sha(weights(model)), file=out)
    print(sorted(k for k in os.environ if k.startswith(("TORCHELASTIC", "LOCAL", "GROUP", "ROLE", "MASTER", "WORLD", "RANK", "NUMSCOPE"))), os.environ["OMP_NUM_THREADS"], file=out)
leave()
