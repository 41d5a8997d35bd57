"""torch.compile (aot_eager) of a model with a log-ratio feature: log of 0 in a compiled graph.
Source: Own: log of 0 in a compiled graph."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 12), nn.Linear(12, 2)

    def forward(self, x):
        h = torch.relu(self.first(x))
        energy = h * h + (1e-6 if CURED else 0.0)
        level = torch.log(energy)  # FAULT
        return self.last(level)


net = Spectrum()
net.first.bias.data.fill_(3.0)
fast = torch.compile(net, backend="aot_eager")
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(4):
    x = torch.rand(6, 4)
    if step == 2:
        x[5] = -100 * torch.sign(net.first.weight.detach().sum(0))
    loss = nn.functional.cross_entropy(fast(x), torch.randint(2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
