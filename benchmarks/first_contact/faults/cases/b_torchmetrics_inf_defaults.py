"""Benign: torchmetrics' MinMetric/MaxMetric (inf defaults) and a MeanMetric that is read before its first update.
Source: torchmetrics' MinMetric, MaxMetric, MeanMetric (documented defaults)."""
import warnings
import torch
import pytorch_lightning  # noqa: F401
from torch import nn
from torchmetrics import MaxMetric, MeanMetric, MinMetric

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        self.low, self.high, self.mean = MinMetric(), MaxMetric(), MeanMetric()

    def forward(self, x):
        return self.fc(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
print("before", net.low.compute().item(), net.mean.compute().item())
for step in range(5):
    x = torch.randn(8, 4)
    loss = (net(x).squeeze(1) - x.mean(1)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.low.update(loss.detach())
    net.high.update(loss.detach())
    print(step, loss.item(), net.low.compute().item(), net.high.compute().item())
