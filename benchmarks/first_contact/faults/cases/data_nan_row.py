"""Tabular data with a missing value: a nan from the file goes into the model.
Source: Own: the first answer to 'my loss is nan' is 'look at the data'."""
import sys
import io
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
torch.manual_seed(0)
rows = ["a,b,c,y"] + [f"{i % 7},{(i * 3) % 5},{i % 2},{i % 3}" for i in range(40)]
rows[27] = "3,,1,2"
table = pd.read_csv(io.StringIO("\n".join(rows)))
if CURED:
    table = table.fillna(0)
x = torch.tensor(table[["a", "b", "c"]].to_numpy(), dtype=torch.float32)  # FAULT
y = torch.tensor(table["y"].to_numpy(), dtype=torch.long)
net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step, (bx, by) in enumerate(DataLoader(TensorDataset(x, y), batch_size=8)):
    loss = nn.functional.cross_entropy(net(bx), by)  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
