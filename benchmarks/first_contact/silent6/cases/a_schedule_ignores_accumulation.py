"""From huggingface/accelerate issue 225.
Wrong: num_training_steps = len(loader) * epochs without // gradient_accumulation_steps: the schedule ends at a quarter of its way.
Could know: yes, the schedule is far from its end when the run ends.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
from transformers import get_linear_schedule_with_warmup
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
X = torch.randn(1600, 16); Y = (X[:, :4].sum(1) > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=16, shuffle=True)
acc, epochs = 4, 4; net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)); opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
total = len(loader) * epochs // (acc if H else 1); sched = get_linear_schedule_with_warmup(opt, 10, total)
for epoch in range(epochs):
    for i, (x, y) in enumerate(loader):
        (F.cross_entropy(net(x), y) / acc).backward()
        if (i + 1) % acc == 0: opt.step(); sched.step(); opt.zero_grad()
    print(epoch, sched.get_last_lr()[0])
print("check: learning rate at the end / its peak", opt.param_groups[0]["lr"] / 2e-3)
