import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 2))
with torch.no_grad():
    model[1].weight[2] = float("nan")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
