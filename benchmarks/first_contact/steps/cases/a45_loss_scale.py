import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scale = 2.0**20
for step in range(6):
    x, y = torch.randn(8, 16).half(), torch.randn(8, 4)
    loss = F.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    (loss * scale).backward()
    for p in model.parameters():
        p.grad /= scale
    optimizer.step()
    print(step, loss.item())
