"""Accelerate, 2 ranks (torchrun): a cosine schedule made for max_train_steps is prepared, and steps once per process: it ends at half the run, and with num_cycles=1.5 it rises again.
Source: https://github.com/huggingface/diffusers/issues/3954 (also RuiningLi/particulate issue 22)
Truth: the learning rate at the middle and at the end of training.
Could a tool know: partly. The schedule reaches its end long before training does; docs say steps by Accelerate are not reported.
ranks: 2
"""
import sys, math, torch, torch.nn.functional as F
from torch import nn
from accelerate import Accelerator
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1)
acc = Accelerator(cpu=True); torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))
opt = torch.optim.AdamW(net.parameters(), 3e-3)
STEPS = 120
total = STEPS * (acc.num_processes if HEALTHY else 1)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)))
net, opt, sched = acc.prepare(net, opt, sched)
g = torch.Generator().manual_seed(acc.process_index)
lrs = []
for step in range(STEPS):
    y = torch.randint(0, 4, (16,), generator=g)
    x = torch.randn(16, 1, 8, 8, generator=g); x[torch.arange(16), 0, y * 2] += 2
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); acc.backward(loss); opt.step(); sched.step()
    lrs.append(sched.get_last_lr()[0])
if acc.is_main_process:
    print(f"TRUTH lr middle {lrs[STEPS // 2 - 1]:.2e} end {lrs[-1]:.2e} loss {loss:.3f}")
acc.end_training()
