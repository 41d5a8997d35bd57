"""Benign: best = inf in early stopping, ReduceLROnPlateau and a buffer of the module.
Source: Bjarten/early-stopping-pytorch (val_loss_min = inf)."""
import copy
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("best", torch.tensor(float("inf")))

    def forward(self, x):
        return self.body(x)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
best_state = None
for epoch in range(5):
    x = torch.randn(32, 5)
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        val = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        if val < net.best:
            net.best.copy_(val)
            best_state = copy.deepcopy(net.state_dict())
    plateau.step(val)
    print(epoch, loss.item(), net.best.item())
