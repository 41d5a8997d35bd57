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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
net = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
opt = torch.optim.RMSprop(net.parameters(), lr=2e-3, momentum=0.5)
for step in range(50):
    x, y = torch.randn(16, 3, 8), torch.randint(3, (16,))
    if step in (0, 5, 25):
        x[1] = float("nan")
    before = [b.clone() for b in net.buffers()]
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    if DROP and bad(opt):
        for b, o in zip(net.buffers(), before): b.copy_(o)
    else:
        opt.step()
    ema.update_parameters(net)
    if step % 10 == 9:
        ema.eval()
        with torch.no_grad():
            ema(torch.randn(4, 3, 8))
bits(net, ema)
