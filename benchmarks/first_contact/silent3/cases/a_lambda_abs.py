"""The lambda of LambdaLR returns the learning rate itself instead of a factor: the rate is squared (0.01 becomes 0.0001).
Source: https://github.com/lhoyer/MIC/issues/60
Truth: the optimizer's lr is 1e-4 and below; the loss barely moves (healthy: lr 1e-2, loss falls).
Could a tool know: partly: at step 0 the factor is not 1 but equals the base rate itself.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
LR = 0.01
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, nesterov=True)


def decay(x):
    return (1.0 + 0.001 * float(x)) ** (-0.75) * (1 if HEALTHY else LR)


sched = torch.optim.lr_scheduler.LambdaLR(opt, decay)
protos = torch.randn(4, 1, 12, 12)
for step in range(200):
    y = torch.randint(0, 4, (32,))
    x = protos[y] + 0.5 * torch.randn(32, 1, 12, 12)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print(f"loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.2e}")
