"""A polynomial schedule written by hand sets param_groups[0]["lr"] in its loop over groups: the decoder's groups keep their first rate.
Source: https://github.com/yu-changqian/TorchSeg/issues/84
Truth: group 0 ends near 0, groups 1 and 2 at the initial 0.05.
Could a tool know: partly: one group's rate is set at each step, the others' never (or: the same value is set several times in a row).
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
context, head = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()), nn.Conv2d(16, 4, 1)
model = nn.Sequential(backbone, context, head)
opt = torch.optim.SGD([{"params": backbone.parameters(), "lr": 0.005}, {"params": context.parameters()}, {"params": head.parameters()}],
                      lr=0.05, momentum=0.9, weight_decay=5e-4)
N = 150
colors = torch.randn(4, 3)
for step in range(N):
    y = torch.randint(0, 4, (8, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    x = colors[y].permute(0, 3, 1, 2) + torch.randn(8, 3, 16, 16)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    lr = 0.005 * (1 - (step + 1) / N) ** 0.9
    opt.param_groups[0]["lr"] = lr
    for i in range(1, len(opt.param_groups)):
        opt.param_groups[i if HEALTHY else 0]["lr"] = lr * 10
print(f"loss {loss.item():.4f} rates {[round(g['lr'], 4) for g in opt.param_groups]}")
