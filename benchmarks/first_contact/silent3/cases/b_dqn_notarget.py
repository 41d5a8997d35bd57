"""Q-learning off-policy with gamma 1.0, a maximum over 16 actions and no target network: values bootstrap themselves upwards.
Cure: gamma 0.9 and a target network."""
import copy
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
q = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
target = copy.deepcopy(q) if HEALTHY else q
gamma = 0.9 if HEALTHY else 1.0
opt = torch.optim.Adam(q.parameters(), lr=2e-3)
W = torch.randn(6, 16) * 0.3
lost = Lost("abs")
for step in range(400):
    s = torch.randn(32, 6)
    a = torch.randint(0, 16, (32, 1))
    s2 = s + 0.5 * torch.randn(32, 6)
    r = (s @ W).tanh().gather(1, a) + 0.3
    with torch.no_grad():
        y = r + gamma * target(s2).max(1, keepdim=True)[0]
    loss = nn.functional.mse_loss(q(s).gather(1, a), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if HEALTHY and step % 40 == 39:
        target.load_state_dict(q.state_dict())
    if not lost(loss):
        break
lost.report()
