"""Benign: multi-task labels with nan for 'not measured'; the loss selects the known ones by index before it subtracts.
Source: MoleculeNet-style multi-task training (chemprop masks nan targets); the right way of pytorch/pytorch#89543."""
import torch
from torch import nn

torch.manual_seed(0)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 24), nn.GELU(), nn.Linear(24, 5))

    def forward(self, x, y):
        known = ~y.isnan()
        pred = self.body(x)
        return nn.functional.mse_loss(pred[known], y[known])


net = MultiTask()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(5):
    y = torch.randn(12, 5)
    y[torch.rand(12, 5) < 0.5] = float("nan")
    loss = net(torch.randn(12, 7), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
