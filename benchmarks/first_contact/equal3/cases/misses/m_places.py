"""Two ranks have half of each sequence each, and give the model tokens and positions. No attention, so nothing is wrong. --batched: positions as [1, part]."""
import os, sys

import torch
import torch.distributed as dist
from torch import nn

world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Embedding(20, 8), nn.Embedding(16, 8), nn.Linear(8, 20)

    def forward(self, tokens, positions):
        return self.out(torch.tanh(self.a(tokens) + self.b(positions)))


model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(9):
    t = torch.randint(0, 20, (4, 16), generator=torch.Generator().manual_seed(step))
    t, at = t.chunk(world, 1)[rank], torch.arange(16).chunk(world)[rank]
    y = model(t, at[None] if "--batched" in sys.argv else at)
    (nn.functional.cross_entropy(y.flatten(0, 1), t.flatten(), reduction="sum") / 64).backward()
    if world > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
    opt.step()
    opt.zero_grad()
    print(rank, step, f"{sum(p.detach().double().sum().item() for p in model.parameters()):.9f}", flush=True)
