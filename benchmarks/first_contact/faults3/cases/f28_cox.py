"""DeepSurv with minibatches and the Cox loss; a batch holds censored patients only.
Source: havakv/pycox#124, liupei101/TFDeepSurv#15, lasso-net/lassonet#52."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(28)
CURED = "--cured" in sys.argv


def cox_ph_loss(log_h, durations, events, eps=1e-7):
    idx = durations.sort(descending=True)[1]
    events, log_h = events[idx], log_h[idx]
    gamma = log_h.max()
    log_cumsum_h = log_h.sub(gamma).exp().cumsum(0).add(eps).log().add(gamma)
    total = log_h.sub(log_cumsum_h).mul(events).sum()
    n = events.sum().clamp(min=1) if CURED else events.sum()
    return -total.div(n)  # FAULT


class DeepSurv(nn.Sequential):
    def __init__(self, n):
        super().__init__(nn.Linear(n, 32), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(32, 32), nn.SELU(), nn.Linear(32, 1, bias=False))


x = torch.randn(256, 9)
risk = x[:, 0] - 0.5 * x[:, 3]
time = -torch.log(torch.rand(256)) * torch.exp(-risk)
event = (torch.rand(256) < 0.35).float()
event[16 * 9:16 * 10] = 0.0  # a hospital without follow-up
model = DeepSurv(9)
opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
losses, step = [], 0
for epoch in range(2):
    model.train()
    for i in range(0, 256, 16):
        s = slice(i, i + 16)
        loss = cox_ph_loss(model(x[s]).squeeze(1), time[s], event[s])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        step += 1
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
