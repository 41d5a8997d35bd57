import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, s, action):
        raw = torch.atanh(action)
        return -((raw - self.net(s)) ** 2).sum(-1)


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(8):
    s, action = torch.randn(8, 4), torch.rand(8, 2) * 1.8 - 0.9
    if step == 2:
        action[6, 0] = 1.0
    loss = -model(s, action).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
