"""Weather forecasting: the readings are standardized per station before the model is made; one gauge is stuck.
Source: fastai/fastai#889, ludwig-ai/ludwig#2543, deeplearning4j/deeplearning4j#1646."""
import sys, math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(23)
CURED = "--cured" in sys.argv


def load(stations=12, hours=60):
    t = torch.arange(hours) / 24 * 2 * math.pi
    raw = 15 + 8 * torch.sin(t)[None] * torch.rand(stations, 1) + torch.randn(stations, hours)
    raw[7] = 31.5
    return raw


raw = load()
mean, std = raw.mean(1, keepdim=True), raw.std(1, keepdim=True)
if CURED:
    std = std.clamp(min=1e-3)
data = (raw - mean) / std  # FAULT
windows = data.unfold(1, 25, 5).reshape(-1, 25)  # station after station
loader = DataLoader(TensorDataset(windows[:, :24], windows[:, 24:]), batch_size=8)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.rnn(x[..., None])[0][:, -1])


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
losses, step = [], 0
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        step += 1
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
