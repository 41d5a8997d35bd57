"""A key's bias has no gradient but rounding (softmax does not see it). Micro-batches of 4 for the batch of 8, both under bfloat16 autocast."""
import sys

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        return self.out(torch.nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), is_causal=True))


model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.3)
n = 2 if "--micro" in sys.argv else 1
for step in range(9):
    x = torch.randn(8, 12, 16, generator=torch.Generator().manual_seed(step))
    for part in x.chunk(n):
        with torch.autocast("cpu", torch.bfloat16):
            y = model(part)
        ((y.float() - 1).square().mean() / n).backward()
    opt.step()
    opt.zero_grad()
    print(step, f"{sum(p.detach().double().sum().item() for p in model.parameters()):.9f}", flush=True)
