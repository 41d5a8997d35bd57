"""Benign: quantisation-aware training: observers' min_val = inf and max_val = -inf before the first batch.
Source: torch.ao.quantization MinMaxObserver's initial buffers."""
import warnings
import torch
from torch import nn
from torch.ao.quantization.observer import MinMaxObserver, MovingAverageMinMaxObserver

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Fake(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 16), nn.Linear(16, 2)
        self.seen, self.moving, self.unused = MinMaxObserver(), MovingAverageMinMaxObserver(), MinMaxObserver()

    def forward(self, x):
        h = torch.relu(self.fc(self.moving(x)))
        self.seen(h)
        scale = (self.seen.max_val - self.seen.min_val).clamp(min=1e-3) / 255
        q = (h / scale).round() * scale
        return self.out(h + (q - h).detach())


net = Fake()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(5):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), net.unused.min_val.item())
