"""Early stopping: best-so-far starts at inf, as a tensor and as a buffer; ReduceLROnPlateau has an inf too.
Source: Bjarten/early-stopping-pytorch (val_loss_min = np.inf), torch.optim.lr_scheduler.ReduceLROnPlateau."""
import math, copy, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(3)


class Stopper(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("best", torch.tensor(float("inf")))
        self.bad = 0

    def forward(self, value):
        improvement = self.best - value
        if improvement > 1e-4:
            self.best.copy_(value)
            self.bad = 0
        else:
            self.bad += 1
        return self.bad < 5


model, stop = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)), Stopper()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=2)
x = torch.randn(200, 8)
y = x[:, :1].sin() + 0.1 * torch.randn(200, 1)
losses, best = [], None
for epoch in range(12):
    for xb, yb in zip(x[:160].split(32), y[:160].split(32)):
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x[160:]), y[160:])
    plateau.step(val)
    if not stop(val):
        break
    best = copy.deepcopy(model.state_dict())
print(losses[0], losses[-1], "FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()) and bool(stop.best.isfinite()))
