"""ZeroRedundancyOptimizer, post-localSGD, PowerSGD hook states, state consolidated on rank 0 and saved.

source: facebookresearch/fairscale#236 (sharded optimizers)
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from fcw import grads, leave, mlp, rng, seed, sha, watch, weights

dist.init_process_group("gloo")
r = dist.get_rank()
out = open(f"out-{r}.txt", "w")
seed(214)
a, b = DDP(mlp()), DDP(mlp(8, 32, 4))
watch(a)
watch(b)
za = ZeroRedundancyOptimizer(a.parameters(), torch.optim.Adam, lr=1e-2)
ob = torch.optim.SGD(b.parameters(), 0.05)
b.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3), powerSGD_hook.powerSGD_hook)
a.register_comm_hook(None, default_hooks.fp16_compress_hook)
seed(50 + r)
for step in range(6):
    la, lb = a(torch.randn(4, 8)).square().mean(), b(torch.randn(4, 8)).square().mean()
    za.zero_grad()
    ob.zero_grad()
    la.backward()
    lb.backward()
    za.step()
    ob.step()
    print(la.item().hex(), lb.item().hex(), sha(grads(a)), sha(grads(b)), file=out)
za.consolidate_state_dict(0)
if r == 0:
    torch.save(za.state_dict(), "zero.pt")
print(sha(weights(a), weights(b)), rng(), file=out)
out.close()
leave()
