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
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.head = nn.Linear(24, 3)
    def forward(self, x):
        return self.head(self.enc(x))
net = Net()
o1, o2 = torch.optim.SGD(net.enc.parameters(), 0.05, momentum=0.9, nesterov=True), torch.optim.Adam(net.head.parameters(), 1e-2, amsgrad=True)
for step in range(50):
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    if step in (6, 7, 40):
        x[0] = float("inf")
    before = [b.clone() for b in net.buffers()]
    loss = F.cross_entropy(net(x), y)
    o1.zero_grad(); o2.zero_grad()
    loss.backward()
    b1, b2 = bad(o1), bad(o2)
    if DROP and (b1 or b2):
        for b, o in zip(net.buffers(), before): b.copy_(o)
    if not (DROP and b1): o1.step()
    if not (DROP and b2): o2.step()
bits(net)
