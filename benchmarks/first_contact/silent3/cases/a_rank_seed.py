"""All ranks set one seed, so flow-matching noise and times are the same on all ranks, though the data differ.
Source: https://github.com/Robbyant/lingbot-vla-v2/issues/41
Truth: rank 0 and 1 draw the same noise in all steps.
Could a tool know: partly: the random state is the same on all ranks at each step, and the model's step draws from it.
"""
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)
data = TensorDataset(torch.randn(320, 6) @ torch.randn(6, 6))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 48), nn.SiLU(), nn.Linear(48, 6))

    def forward(self, x):
        self.noise, t = torch.randn_like(x), torch.rand(x.shape[0], 1)
        v = self.net(torch.cat([(1 - t) * self.noise + t * x, t], 1))
        return ((v - (x - self.noise)) ** 2).mean()


model = DDP(Flow())
torch.manual_seed(7 + rank if HEALTHY else 7)
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=16, sampler=sampler)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(10):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        loss = model(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
n = [torch.zeros_like(model.module.noise) for _ in range(2)]
dist.all_gather(n, model.module.noise)
print(f"rank {rank} loss {loss.item():.4f} same noise {torch.equal(*n)}")
dist.destroy_process_group()
