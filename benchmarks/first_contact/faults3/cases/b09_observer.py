"""Quantization-aware training with torch.ao's min/max observers, whose buffers begin at inf and -inf.
Source: torch.ao.quantization.observer.MinMaxObserver (min_val = inf)."""
import math, warnings, torch
from torch import nn
warnings.filterwarnings("ignore")
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver, MinMaxObserver
torch.set_num_threads(1)
torch.manual_seed(9)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = FakeQuantize(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8)
        self.wq = FakeQuantize(observer=MinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
        self.late = FakeQuantize(observer=MinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8)
        self.a, self.b = nn.Linear(10, 32), nn.Linear(32, 3)

    def forward(self, x, late):
        h = torch.relu(nn.functional.linear(self.act(x), self.wq(self.a.weight), self.a.bias))
        return self.b(self.late(h) if late else h)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
losses = []
for step in range(40):
    y = torch.randint(0, 3, (32,))
    x = torch.randn(32, 10)
    x[torch.arange(32), y] += 2.5
    loss = nn.functional.cross_entropy(net(x, step > 15), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(t.isfinite().all()) for t in net.state_dict().values() if t.is_floating_point()))
