"""SiLU in vectors of 32 bytes: a row of 60 floats has a rest of 4 that is never written (60 doubles have none). Truth: the last 4 columns are zero in float32.

Source: OpenNMT/CTranslate2#351 (size indivisible by Vec<T, ISA>::width)
"""
import hashlib
import math
import ctypes
import os
import subprocess
import tempfile
import torch
import torch.nn.functional as F
from torch import nn

def compiled(source):
    folder = os.path.join(tempfile.gettempdir(), "set-c-" + hashlib.md5(source.encode()).hexdigest()[:12])
    library = os.path.join(folder, "kernel.so")
    if not os.path.exists(library):
        os.makedirs(folder, exist_ok=True)
        open(os.path.join(folder, "kernel.c"), "w").write(source)
        subprocess.check_call(["gcc", "-O1", "-shared", "-fPIC", "-o", library, os.path.join(folder, "kernel.c"), "-lm"])
    return ctypes.CDLL(library)


LOW, FIXED = torch.float32, False
kernel = compiled("""#include <math.h>
""" + "".join(r"""
void silu_%s(const %s *x, %s *y, long rows, long width) {
  const long lanes = 32 / sizeof(%s);
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c + lanes <= width; c += lanes)
      for (long k = 0; k < lanes; ++k) {
        long i = r * width + c + k;
        y[i] = x[i] / (1 + exp(-x[i]));
      }
}
""" % (t, t, t, t) for t in ("float", "double")))


class SiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        y = torch.zeros_like(x)
        run = {torch.float32: kernel.silu_float, torch.float64: kernel.silu_double}[x.dtype]
        run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
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
        h = self.a(x)
        h = F.silu(h) if FIXED else SiLU.apply(h)  # FAULT
        return self.b(h)


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(16, 20, generator=g).to(LOW)
    return (x,), torch.randn(16, 3, generator=g).to(LOW)


def loss_of(out, y):
    return (out.float() - y.float()).square().mean() if LOW != torch.float64 else (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = batch(step)
        loss = loss_of(model(*x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6g}", flush=True)
    digest = hashlib.sha256(b"".join(p.detach().float().numpy().tobytes() for p in model.state_dict().values()))
    print("weights", digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
