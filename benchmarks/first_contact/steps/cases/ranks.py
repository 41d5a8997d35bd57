"""ranks.py CASE: one bit flipped on one rank of DDP, at step 2; or nothing (h-...). Environment as torchrun sets it."""
import ctypes
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CASE, MAIN, AT = sys.argv[1], -1 if os.environ.get("NOSTRIKE") else os.getpid(), 2
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# case: struck rank, bit
CASES = {"d01-fc1": (1, 14), "d02-grad-relu": (2, 17), "d03-wgrad-local": (1, 16), "d04-fc1": (0, 9), "d05-averaged": (1, 19), "d06-averaged": (3, 12), "d07-averaged": (1, 21), "d08-avg": (2, 18), "d09-nosync-fc1": (1, 15),
         "d10-view-grad-relu": (1, 16), "d11-norm": (0, 13), "d12-loss": (1, 18), "d13-averaged": (2, 3), "d14-weight": (1, 17), "d15-view-averaged": (2, 15), "d16-fc2": (3, 20), "d17-averaged-last": (0, 22), "d18-hook-averaged": (1, 10)}
STEP, fired = [0], []


def strike(t):
    if CASE not in CASES or STEP[0] != AT or os.getpid() != MAIN or fired or RANK != CASES[CASE][0]:
        return None
    fired.append(1)
    for i in range(t.numel()):
        cell = ctypes.c_uint32.from_address(t.data_ptr() + 4 * i)
        if abs(ctypes.c_float.from_buffer_copy(cell).value) > 1e-6:
            old = cell.value
            cell.value ^= 1 << CASES[CASE][1]
            print(f"STRUCK {CASE} element {i} of {tuple(t.shape)}: {old:#x} -> {cell.value:#x} bit {CASES[CASE][1]} rank {RANK}", flush=True)
            break
    return None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        h = F.linear(x, self.fc1.weight, self.fc1.bias)  #@ fc1 wgrad
        if "fc1" in CASE:
            strike(h)
        h = self.norm(h)  #@ norm
        if CASE.endswith("-norm"):
            strike(h)
        h = F.relu(h)
        if "grad-relu" in CASE and h.requires_grad:
            h.register_hook(strike)
        y = self.fc2(h)  #@ fc2 grad-relu
        if "fc2" in CASE:
            strike(y)
        return y


class Adam(torch.optim.AdamW):
    def step(self, closure=None):
        super().step(closure)
        p = self.param_groups[0]["params"][0]
        if CASE.endswith("-avg"):
            strike(self.state[p]["exp_avg"])
        if CASE.endswith("-weight"):
            strike(p)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
if CASE == "d03-wgrad-local":
    model.fc1.weight.register_hook(strike)
ddp = DDP(model, gradient_as_bucket_view="view" in CASE)
if "hook" in CASE:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
optimizer = Adam(ddp.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(100 + RANK)
for step in range(int(os.environ.get("STEPS", 12))):
    STEP[0] = step
    if "nosync" in CASE:
        with ddp.no_sync():
            F.cross_entropy(ddp(torch.randn(8, 8, generator=generator)), torch.randint(0, 4, (8,), generator=generator)).backward()
    out = ddp(torch.randn(8, 8, generator=generator))
    z = out.log_softmax(-1)
    if CASE == "d12-loss":
        strike(z)
    loss = F.nll_loss(z, torch.randint(0, 4, (8,), generator=generator))
    loss.backward()
    if "averaged" in CASE:
        strike((model.fc2.bias if "last" in CASE else model.fc1.weight).grad)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.barrier()
dist.destroy_process_group()
print("end", RANK, "struck" if fired else "")
if os.environ.get("DIGEST"):
    import hashlib

    print("DIGEST", RANK, hashlib.sha256(b"".join(t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in [*model.state_dict().values(), *[v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor) and v.dim()]])).hexdigest()[:16], hashlib.sha256(b"".join(t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in model.state_dict().values() if t.dim())).hexdigest()[:16])
