"""Healthy. Source: deepmodeling/deepmd-kit, xformers: a right kernel of one's own behind an autograd.Function (the twin of w03)
"""
# CHECK float64
import hashlib
import math
import ctypes
import os
import subprocess
import tempfile
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
def compiled(source):
    folder = os.path.join(tempfile.gettempdir(), "set-c-" + hashlib.md5(source.encode()).hexdigest()[:12])
    library = os.path.join(folder, "kernel.so")
    if not os.path.exists(library):
        os.makedirs(folder, exist_ok=True)
        open(os.path.join(folder, "kernel.c"), "w").write(source)
        subprocess.check_call(["gcc", "-O1", "-shared", "-fPIC", "-o", library, os.path.join(folder, "kernel.c"), "-lm"])
    return ctypes.CDLL(library)


kernel = compiled("""#include <math.h>
""" + "".join(r"""
void silu_%s(const %s *x, %s *y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] / (1 + exp(-x[i]));
}
""" % (t, t, t) for t in ("float", "double")))


class SiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        y = torch.zeros_like(x)
        run = {torch.float32: kernel.silu_float, torch.float64: kernel.silu_double}[x.dtype]
        run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * s * (1 + x * (1 - s))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(20, 60), nn.Linear(60, 3)

    def forward(self, x):
        return self.b(SiLU.apply(self.a(x)))


model = Net()
x, y = torch.randn(4, 16, 20), torch.randn(4, 16, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
