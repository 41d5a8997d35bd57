# opts: --check again:every=1
# truth: no hardware; index_put_(accumulate=True) with two threads adds by atomics: other bits each time
# source: pytorch docs, use_deterministic_algorithms; pytorch/pytorch issues on index_put_ accumulate on CPU
import flips as C, torch
from torch import nn
torch.set_num_threads(2)
class Scatter(nn.Module):
    def forward(s, x, i):
        z = torch.zeros(7, dtype=x.dtype)
        if C.FAULT: return z.index_put((i,), x, accumulate=True)  # FAULT
        return torch.stack([x[i == k].sum() for k in range(7)])
class Net(nn.Module):
    def __init__(s): super().__init__(); s.a, s.s, s.b = nn.Linear(4, 1), Scatter(), nn.Linear(7, 1)
    def forward(s, x, i): return s.b(s.s(s.a(x)[:, 0], i) / 1e4)
torch.manual_seed(0); m = Net(); o = torch.optim.SGD(m.parameters(), 0.001)
x = torch.randn(300000, 4); i = torch.randint(0, 7, (300000,))
z = {C.hashlib.md5(torch.zeros(7).index_put((i,), x[:, 0], accumulate=True).numpy().tobytes()).hexdigest() for _ in range(10)}
print("TRUTH distinct results of ten:", len(z))
for C.STEP in range(6):
    m(x, i).square().mean().backward(); o.step(); o.zero_grad()
C.finish([])
