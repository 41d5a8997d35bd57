"""Benign: DQN with -inf for illegal actions; torch.where drops the infinite maximum of terminal states, under no_grad.
Source: Own: the right way of dqn_all_actions_masked."""
import copy
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 9))
target_net = copy.deepcopy(net)
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for step in range(5):
    nxt = torch.randint(-1, 2, (8, 9)).float()
    nxt[:, 0], nxt[6] = 0, 1.0
    done = torch.zeros(8, dtype=torch.bool)
    done[6] = True
    with torch.no_grad():
        best = target_net(nxt).masked_fill(nxt != 0, float("-inf")).max(1).values
        target = torch.where(done, torch.randn(8), torch.randn(8) + 0.99 * best)
    q = net(torch.randn(8, 9)).gather(1, torch.randint(9, (8, 1))).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
