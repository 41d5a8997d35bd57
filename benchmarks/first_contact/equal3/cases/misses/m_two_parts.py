"""One model, or (--parts) its two halves as modules of their own that are called in turn, in one process; names, weights, and results are the same."""
import sys

import torch
from torch import nn

torch.manual_seed(0)


class Part(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleDict(layers)

    def forward(self, x):
        for m in self.layers.values():
            x = torch.tanh(m(x))
        return x


layers = {str(i): nn.Linear(8, 8) for i in range(4)}
if "--parts" in sys.argv:
    parts = [Part({k: layers[k] for k in ("0", "1")}), Part({k: layers[k] for k in ("2", "3")})]
else:
    parts = [Part(layers)]
opt = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)
for step in range(9):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    if "--micro" in sys.argv and len(parts) > 1:  # the order of an interleaved schedule
        xs = [parts[0](c) for c in x.chunk(2)]
        loss = sum((parts[1](c) - 1).square().mean() / 2 for c in xs)
    else:
        y = x
        for part in parts:
            y = part(y)
        loss = (y - 1).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, f"{loss.item():.9f}", flush=True)
