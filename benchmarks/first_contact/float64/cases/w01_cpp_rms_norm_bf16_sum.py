"""RMS norm as a C++ extension; the sum of squares is kept in scalar_t, so in bfloat16 it stalls. Truth: long sums of ones stop at 256.

Source: pytorch/executorch#20089 and ml-explore/mlx#3909 (reductions accumulate in the input's dtype)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

from torch.utils.cpp_extension import load_inline

LOW, FIXED = torch.bfloat16, False
SOURCE = r"""
#include <torch/extension.h>
torch::Tensor inverse_rms(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  auto n = x.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "inverse_rms", [&] {
    auto p = x.const_data_ptr<scalar_t>();
    auto q = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.size(0); ++i) {
      scalar_t total = 0;
      for (int64_t j = 0; j < n; ++j) total += p[i * n + j] * p[i * n + j];
      q[i] = scalar_t(1.0 / std::sqrt(double(total) / n + 1e-6));
    }
  });
  return out;
}
"""
extension = load_inline("set_rms", SOURCE, functions=["inverse_rms"])


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        if FIXED:
            r = (x.square().mean(-1) + 1e-6).rsqrt()
        else:
            r = extension.inverse_rms(x.contiguous())  # FAULT
        ctx.save_for_backward(x, weight, r)
        return x * r[:, None] * weight

    @staticmethod
    def backward(ctx, g):
        x, weight, r = ctx.saved_tensors
        h = x * r[:, None]
        gh = g * weight
        return (gh - h * (gh * h).mean(-1, keepdim=True)) * r[:, None], (g * h).sum(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 2048), nn.Linear(2048, 4)
        self.weight = nn.Parameter(torch.ones(2048))

    def forward(self, x):
        return self.down(RMSNorm.apply(self.up(x) * 2, self.weight))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    x = torch.randn(8, 32, generator=g).to(LOW)
    return (x,), torch.randn(8, 4, generator=g).to(LOW)


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
