import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def contrast(z, labels):
    d = (z[:, None] - z[None]).square().sum(-1).sqrt()
    same = labels[:, None] == labels[None]
    return torch.where(same, d, (1 - d).clamp_min(0)).mean()


for step in range(6):
    loss = contrast(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
