import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)

policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(8):
    state, action, advantage = torch.randn(16, 4), torch.randint(0, 3, (16,)), torch.randn(16)
    new = policy(state).log_softmax(-1).gather(1, action[:, None])[:, 0]
    old = new.detach() - 0.1 * torch.rand(16)
    if step == 2:
        old[9] = -100.0
        advantage[9] = -1.0
    ratio = torch.exp(new - old)
    loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
