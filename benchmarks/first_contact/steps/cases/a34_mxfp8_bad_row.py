import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
from numscope import precision

model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
precision.convert(model, precision.MXFP8())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 32)
    if step == 2:
        x[6, 3] = float("nan")
    loss = F.cross_entropy(model(x), torch.randint(0, 4, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
