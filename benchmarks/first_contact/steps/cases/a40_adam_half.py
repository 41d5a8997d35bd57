import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
for step in range(6):
    x = torch.randn(8, 8).half()
    x[:, 3] = 0
    loss = F.cross_entropy(model(x).float(), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
