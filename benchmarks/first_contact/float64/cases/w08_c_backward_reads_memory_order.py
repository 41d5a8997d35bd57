"""The C kernel of a backward takes the gradient's pointer as if it were contiguous; here it is a transposed view. Truth: gradient equals that of the same numbers in another order.

Source: MrNeRF/optimized-fused-ssim#1, deepmodeling/deepmd-kit#3910 (kernel assumes a contiguous gradient)
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
kernel = compiled("".join(r"""
void scale_%s(const %s *g, const %s *s, %s *out, long rows, long width) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < width; ++c) out[r * width + c] = g[r * width + c] * s[r * width + c];
}
""" % (t, t, t, t) for t in ("float", "double")))


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = x.cos().contiguous()
        if FIXED:
            g = g.contiguous()
        out = torch.empty_like(slope)
        run = {torch.float32: kernel.scale_float, torch.float64: kernel.scale_double}[x.dtype]
        pointer = lambda t: ctypes.c_void_p(t.data_ptr())
        run(pointer(g), pointer(slope), pointer(out), ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 12), nn.Linear(8, 2)

    def forward(self, x):
        h = Sine.apply(self.a(x))  # FAULT
        return self.b(h.t().contiguous().tanh())


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(8, 10, generator=g).to(LOW)
    return (x,), torch.randn(12, 2, generator=g).to(LOW)


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
