import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

import os
PID = os.getpid()  # not in processes that are forked of this one
from torch.utils._python_dispatch import TorchDispatchMode
class Flip(TorchDispatchMode):  # one bit of one element of one result of the n-th `op`
    def __init__(self, op, n, bit, index): super().__init__(); self.op, self.n, self.bit, self.index = op, n, bit, index
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if self.op == str(func) and os.getpid() == PID:
            if self.n == 0:
                t = out
                while isinstance(t, (tuple, list)): t = t[0]
                if t is None: t = args[0][0]
                v = t.detach().view(-1) if t.is_contiguous() else t.detach().as_strided((t.numel(),), (1,))
                w = v.view(torch.int32); w[self.index] ^= 1 << self.bit
                print("FLIPPED", func, v.shape, flush=True)
            self.n -= 1
        return out
import contextlib

class Block(nn.Module):
    def __init__(self):
        super().__init__(); self.n, self.a, self.b = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.n(x))))
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.blocks, self.out = nn.ModuleList(Block() for _ in range(2)), nn.Linear(8, 2)
    def forward(self, x):
        for b in self.blocks: x = b(x)
        return self.out(x)
net = Net(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(8):
    x, y = torch.randn(4, 8), torch.randint(0, 2, (4,))
    with (Flip("aten.addmm.default", 2, 12, 5) if step == 3 else contextlib.nullcontext()):  # blocks.1.a
        p = net(x)
    F.cross_entropy(p, y).backward()
    opt.step()
    opt.zero_grad()
sha(net)
