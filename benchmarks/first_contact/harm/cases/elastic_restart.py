"""A rank that fails in its first life by an error, in its second by a signal; torchrun restarts both; what each life did is in files.

source: pytorch/pytorch#76198, pytorch/pytorch#108158, pytorch/pytorch#60910
meta: {"torchrun": 2, "torchrun_args": ["--max-restarts", "2", "--monitor-interval", "0.2"], "compare": ["status", "files", "left"], "limit": 90, "ignore": ["meet*"]}
"""
import os
import signal
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from fcw import leave, mlp, rng, seed, sha, watch, weights

life, r = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
dist.init_process_group("gloo", store=dist.FileStore(os.path.abspath(f"meet{life}"), 2), rank=r, world_size=2)
seed(208)
net = mlp()
begin = 0
if os.path.exists("ckpt.pt"):
    ckpt = torch.load("ckpt.pt")
    net.load_state_dict(ckpt["net"])
    begin = ckpt["step"]
model = DDP(net)
watch(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
said = []
for step in range(begin, 9):
    seed(100 * step + r)
    loss = model(torch.randn(4, 8)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    said.append(loss.item().hex())
    if step % 3 == 2:
        dist.barrier()
        if r == 0:
            torch.save({"net": net.state_dict(), "step": step + 1}, "ckpt.pt.tmp")
            os.replace("ckpt.pt.tmp", "ckpt.pt")
        dist.barrier()
        with open(f"life{life}-rank{r}.txt", "w") as f:
            f.write(repr((begin, said, sha(weights(net)))))
        dist.barrier()
        if life == 0 and r == 1:
            raise RuntimeError("first life ends")
        if life == 1 and r == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if life < 2:
            time.sleep(60)
leave()
