"""Speaker model with statistics pooling in a checkpointed module; a silent segment has no variance.
Source: speechbrain ECAPA-TDNN's AttentiveStatisticsPooling (.clamp(eps) before sqrt); digantamisra98/EvoNorm#4."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
torch.manual_seed(56)
EPS = 1e-7 if "--cured" in sys.argv else 0.0


class StatsPool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.att = nn.Sequential(nn.Conv1d(d, 16, 1), nn.Tanh(), nn.Conv1d(16, d, 1))

    def forward(self, x):
        w = self.att(x).softmax(-1)
        mean = (w * x).sum(-1)
        var = (w * (x - mean[..., None]).pow(2)).sum(-1)
        std = torch.sqrt(var + EPS)  # FAULT
        return torch.cat([mean, std], 1)


class Speaker(nn.Module):
    def __init__(self, mels=16, d=32, speakers=6):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv1d(a, d, 3, dilation=i + 1), nn.SiLU()) for i, a in enumerate((mels, d, d)))
        self.pool = StatsPool(d)
        self.fc = nn.Linear(2 * d, 24)
        self.weight = nn.Parameter(torch.randn(speakers, 24))

    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        e = self.fc(checkpoint(self.pool, x, use_reentrant=False))
        return F.linear(F.normalize(e), F.normalize(self.weight))


model = Speaker()
opt = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
losses = []
for step in range(14):
    y = torch.randint(0, 6, (8,))
    mel = torch.randn(8, 16, 50) + 0.5 * y[:, None, None]
    if step == 8:
        mel[2] = math.log(1e-5)
    cos = model(mel)
    margin = F.one_hot(y, 6) * 0.2
    loss = F.cross_entropy(20 * (cos - margin), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
