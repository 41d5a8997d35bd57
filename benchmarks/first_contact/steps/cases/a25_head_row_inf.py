import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))
with torch.no_grad():
    model[2].weight[3, 5] = float("inf")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 6, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
