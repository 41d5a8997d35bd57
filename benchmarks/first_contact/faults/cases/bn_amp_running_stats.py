"""Autocast float16: a convolution overflows, GradScaler skips the step, and BatchNorm's running statistics keep the nan.
Source: pytorch/pytorch#88474, #90342."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 16, 3, padding=1)
        self.bn = nn.BatchNorm1d(16)
        self.fc = nn.Linear(16, 2)

    def forward(self, x):
        h = self.conv(x)  # FAULT
        return self.fc(torch.relu(self.bn(h)).mean(-1))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(6):
    x = torch.rand(4, 3, 10)
    if step == 3:
        x = x * (1e2 if CURED else 2e5)  # a clip that was not normalised
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x).float(), torch.randint(2, (4,)))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())
print("running mean", net.bn.running_mean.abs().max().item())
