"""RMS norm in Triton (interpreter) whose block is 512 bytes: of 200 float32 columns 128 are normalized, the others stay. Truth: columns 128 to 199 are zero.

Source: facebookresearch/xformers#785, state-spaces/mamba#340 (columns beyond BLOCK_N = 65536 // element_size are left out)
"""
import hashlib
import math
import os
os.environ["TRITON_INTERPRET"] = "1"
import triton
import triton.language as tl
import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False


@triton.jit
def norm(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    r = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n + 1e-6)
    tl.store(y_ptr + row * n + at, x * r, mask=at < n)


@torch.library.custom_op("w15::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor) -> torch.Tensor:
    if FIXED:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    y = torch.zeros_like(x)
    norm[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=min(512 // x.element_size(), triton.next_power_of_2(x.shape[1])))
    return y


def setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def backward(ctx, g):
    (x,) = ctx.saved_tensors
    r = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    h = x * r
    return (g - h * (g * h).mean(-1, keepdim=True)) * r


rms_norm.register_autograd(backward, setup_context=setup)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 200), nn.Linear(200, 2)

    def forward(self, x):
        return self.b(rms_norm(self.a(x)))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(6, 12, generator=g).to(LOW)
    return (x,), torch.randn(6, 2, generator=g).to(LOW)


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
