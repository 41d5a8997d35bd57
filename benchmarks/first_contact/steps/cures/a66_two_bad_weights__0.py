import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
with torch.no_grad():
    model[0].weight[4] = float("nan")
    model[2].weight[1] = float("inf")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with torch.no_grad():
    model[0].weight[4] = 0
    model[2].weight[1] = 0
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
