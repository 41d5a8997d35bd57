import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


DROP = "--drop" in sys.argv
import hashlib
def bits(*ms):
    h = hashlib.sha256()
    for m in ms:
        for k, v in m.state_dict().items():
            h.update(k.encode()); h.update(v.detach().contiguous().cpu().numpy().tobytes())
    print("BITS", h.hexdigest())
def bad(opt):
    return any(p.grad is not None and not p.grad.isfinite().all() for g in opt.param_groups for p in g["params"])
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
K = 4
micro = 0
before = [b.clone() for b in net.buffers()]
for i in range(120):
    x, y = torch.randn(8, 6), torch.randint(3, (8,))
    if i in (21, 50, 51):  # the 2nd of its group, and two in one group
        x *= float("inf") if i == 21 else 1e38 * 10
    (F.cross_entropy(net(x), y) / K).backward()
    if (i + 1) % K == 0:
        if DROP and bad(opt):
            for b, o in zip(net.buffers(), before): b.copy_(o)
        else:
            opt.step()
        opt.zero_grad(set_to_none=False)
        before = [b.clone() for b in net.buffers()]
bits(net)
