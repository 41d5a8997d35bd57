import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, -1)
        raw = mean + log_std.clamp(-5, 2).exp() * torch.randn_like(mean)
        action = 2.0 * torch.tanh(raw)
        correction = torch.log(1 - action.pow(2) + 1e-6)
        return action, -(0.5 * raw**2 + log_std).sum(-1) - correction.sum(-1)


model = Actor()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    action, logp = model(torch.randn(16, 4))
    loss = logp.mean() - action.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
