"""Stock transformer on log returns that NumPy computes in the Dataset; a suspended stock has a price of 0.
Source: jaungiers/LSTM-Neural-Network-for-Time-Series-Prediction#66 (0 in the windows' normalization)."""
import sys, math
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(24)
rng = np.random.default_rng(24)
CURED = "--cured" in sys.argv


class Prices(Dataset):
    def __init__(self, n=16, days=40, window=17):
        self.prices = np.exp(np.cumsum(rng.normal(0, 0.02, (n, days)), 1)) * 50
        self.prices[9, 20:24] = 0.0
        self.window = window
        self.index = [(i, d) for i in range(n) for d in range(0, days - window, 4)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        i, d = self.index[k]
        p = self.prices[i, d:d + self.window]
        if CURED:
            p = np.maximum(p, 0.01)
        with np.errstate(all="ignore"):
            r = np.diff(np.log(p)) * 10  # FAULT
        return torch.from_numpy(r[:-1]).float(), torch.tensor(r[-1], dtype=torch.float32)


class Model(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(1, d)
        self.pos = nn.Parameter(torch.randn(15, d) * 0.02)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, 1)

    def forward(self, r):
        return self.out(self.enc(self.inp(r[..., None]) + self.pos).mean(1)).squeeze(1)


model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step, (r, y) in enumerate(DataLoader(Prices(), batch_size=8)):
    loss = nn.functional.huber_loss(model(r), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
