import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for step in range(8):
    x = torch.randn(8, 8).requires_grad_()
    out = critic(x * 0 if step == 2 else x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = out.mean() + (g.square().sum(-1).sqrt() - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
