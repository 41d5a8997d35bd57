import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4))

    def forward(self, x):
        return 0.5 * (x @ self.w).square().sum(-1) - torch.log(torch.det(self.w).abs().clamp_min(1e-6))


model = Flow()
with torch.no_grad():
    model.w[3] = 0
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    loss = model(torch.randn(8, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
