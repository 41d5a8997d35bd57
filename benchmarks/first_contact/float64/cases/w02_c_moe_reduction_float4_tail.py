"""Experts' results are added by a C kernel in quads of floats; 63 columns: the last 3 stay as they were. The kernel has float only. Truth: columns 60 to 62 are zero.

Source: stew675/llama-cpp-rdna-boosts#19 (moe_weighted_reduction drops the last n_embd % 4 columns)
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
kernel = compiled(r"""
void reduce(const float *v, const float *w, float *out, long tokens, long experts, long width) {
  for (long t = 0; t < tokens; ++t)
    for (long c = 0; c < width / 4; ++c)
      for (int k = 0; k < 4; ++k) {
        float total = 0;
        for (long e = 0; e < experts; ++e) total += w[t * experts + e] * v[(t * experts + e) * width + 4 * c + k];
        out[t * width + 4 * c + k] = total;
      }
}
""")


@torch.library.custom_op("w02::reduce", mutates_args=())
def reduce(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    if v.dtype != torch.float32:
        raise NotImplementedError("reduce has a kernel for float32 only")
    v, w = v.contiguous(), w.contiguous()
    out = torch.zeros(v.shape[0], v.shape[2])
    pointer = lambda t: ctypes.c_void_p(t.data_ptr())
    kernel.reduce(pointer(v), pointer(w), pointer(out), *map(ctypes.c_long, v.shape))
    return out


@reduce.register_fake
def _(v, w):
    return v.new_empty(v.shape[0], v.shape[2])


def setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def backward(ctx, g):
    v, w = ctx.saved_tensors
    return w[:, :, None] * g[:, None], (v * g[:, None]).sum(-1)


reduce.register_autograd(backward, setup_context=setup)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(16, 63) for _ in range(3))
        self.gate, self.head = nn.Linear(16, 3), nn.Linear(63, 2)

    def forward(self, x):
        v = torch.stack([e(x).tanh() for e in self.experts], 1)
        w = self.gate(x).softmax(-1)
        if FIXED:
            return self.head((v * w[:, :, None]).sum(1))
        return self.head(reduce(v, w))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(12, 16, generator=g).to(LOW)
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
