"""The warm-up factor is computed with integer division (Python 2's /): it is 0 for the whole warm-up of 100 steps.
Source: https://github.com/facebookresearch/maskrcnn-benchmark/issues/335
Truth: the weights have not moved after 100 of 160 steps.
Could a tool know: yes: an optimizer steps with a rate of 0 again and again.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class WarmupMultiStepLR(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, milestones, warmup_iters, last_epoch=-1):
        self.milestones, self.warmup_iters = milestones, warmup_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        factor = 1
        if self.last_epoch < self.warmup_iters:
            factor = (self.last_epoch + 1) / self.warmup_iters if HEALTHY else self.last_epoch // self.warmup_iters
        decay = 0.1 ** sum(self.last_epoch >= m for m in self.milestones)
        return [base * factor * decay for base in self.base_lrs]


model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
first = model[0].weight.detach().clone()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
sched = WarmupMultiStepLR(opt, [140], 100)
w = torch.randn(10, 3)
for step in range(160):
    x = torch.randn(32, 10)
    loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step == 95:
        print(f"moved by step 95: {(model[0].weight - first).abs().max():.2e}")
print(f"loss {loss.item():.4f}")
