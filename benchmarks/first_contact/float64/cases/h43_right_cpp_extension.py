"""Healthy. Source: PyTorch docs, C++ extensions: a right kernel that accumulates in float (the twin of w01)
"""
# CHECK float64
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
torch::Tensor inverse_rms_right(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  auto n = x.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "inverse_rms", [&] {
    auto p = x.const_data_ptr<scalar_t>();
    auto q = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.size(0); ++i) {
      double total = 0;
      for (int64_t j = 0; j < n; ++j) total += double(p[i * n + j]) * double(p[i * n + j]);
      q[i] = scalar_t(1.0 / std::sqrt(total / n + 1e-6));
    }
  });
  return out;
}
"""
extension = load_inline("set_rms_right", SOURCE, functions=["inverse_rms_right"])


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        r = extension.inverse_rms_right(x.contiguous())
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
        self.up, self.down = nn.Linear(32, 256), nn.Linear(256, 4)
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x):
        return self.down(RMSNorm.apply(self.up(x) * 2, self.weight))


model = Net()
x, y = torch.randn(4, 8, 32), torch.randn(4, 8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    loss = F.mse_loss(model(x[step]), y[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
digest = hashlib.sha256(b"".join(p.detach().float().contiguous().numpy().tobytes() for m in [model] for p in m.state_dict().values()))
print("weights", digest.hexdigest()[:16])
