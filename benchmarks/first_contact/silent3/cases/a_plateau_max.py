"""ReduceLROnPlateau(mode="max") is given the validation loss: each epoch in which the loss falls counts as a bad one.
Source: https://github.com/FunctionLab/selene/issues/115
Truth: the learning rate ends at 1e-8 (healthy: it is cut when the loss really stands).
Could a tool know: partly: a scheduler with mode="max" is fed a number that equals the loss, and cuts while that number falls.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(512, 12)
w = torch.randn(12, 1)
y = x @ w + 0.5 * torch.sin(3 * x[:, :1]) + 0.05 * torch.randn(512, 1)
model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="min" if HEALTHY else "max", factor=0.1, patience=3)
for epoch in range(25):
    model.train()
    perm = torch.randperm(384)
    for i in range(0, 384, 48):
        idx = perm[i : i + 48]
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x[384:]), y[384:]).item()
    sched.step(val)
print(f"val {val:.4f} lr {opt.param_groups[0]['lr']:.2e}")
