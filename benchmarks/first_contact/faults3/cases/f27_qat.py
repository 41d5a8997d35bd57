"""Quantization-aware training with a custom fake-quantize Function and gradual channel pruning.
Source: ml-explore/mlx#1028 ("Fix quantization of all 0s"), microsoft/nni#4443."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(27)
FLOOR = 1e-7 if "--cured" in sys.argv else 0.0


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, bits):
        q = 2 ** (bits - 1) - 1
        scale = w.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=FLOOR) / q
        return torch.round(w / scale).clamp(-q, q) * scale  # FAULT

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QConv(nn.Conv2d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("mask", torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x):
        return F.conv2d(x, FakeQuant.apply(self.weight * self.mask, 8), self.bias, self.stride, self.padding)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = QConv(1, 8, 3, stride=2, padding=1), QConv(8, 16, 3, stride=2, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu6(self.bn1(self.a(x)))
        x = F.relu6(self.bn2(self.b(x)))
        return self.fc(x.mean((2, 3)))


@torch.no_grad()
def prune(conv, n):
    order = (conv.weight * conv.mask).abs().sum((1, 2, 3)).argsort()
    conv.mask[order[:n]] = 0.0


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
losses = []
for step in range(18):
    y = torch.randint(0, 4, (16,))
    x = torch.randn(16, 1, 16, 16) + y[:, None, None, None].float()
    if step >= 10 and step % 4 == 2:
        prune(net.b, (step - 6) // 4)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in net.state_dict().values()))
