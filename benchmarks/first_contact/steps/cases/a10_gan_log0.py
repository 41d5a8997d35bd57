import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
maker = nn.Linear(4, 8)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
optimizer2 = torch.optim.Adam(maker.parameters(), lr=1e-3)
for step in range(8):
    real = torch.randn(8, 8)
    if step == 2:
        real = real * 0 + 1e4 * (critic[0].weight.detach() * critic[2].weight.detach().T).sum(0)
    fake = maker(torch.randn(8, 4))
    loss = -torch.log(1 - critic(real)).mean() - torch.log(critic(fake.detach())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss2 = -torch.log(1 - critic(fake) + 1e-6).mean()
    optimizer2.zero_grad()
    loss2.backward()
    optimizer2.step()
    print(step, loss.item(), loss2.item())
