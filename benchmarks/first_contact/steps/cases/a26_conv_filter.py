import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
with torch.no_grad():
    model[0].weight[5, 1, 1, 2] = float("nan")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
