"""DQN with illegal actions at -inf: in a terminal state none is legal, and (1 - done) * -inf is nan.
Source: Own: action masking with -inf and a multiplied (1 - done)."""
import sys
import copy
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 2)
        self.out = nn.Linear(16, 9)

    def forward(self, board):
        return self.out(torch.relu(self.conv(board[:, None])).flatten(1))


net = QNet()
target_net = copy.deepcopy(net)
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for step in range(5):
    board = torch.randint(-1, 2, (8, 3, 3)).float()
    nxt = torch.randint(-1, 2, (8, 3, 3)).float()
    nxt[:, 0, 0] = 0
    done = torch.zeros(8)
    if step == 3:
        nxt[6] = 1.0  # a full board
        done[6] = 1.0
    with torch.no_grad():
        q = target_net(nxt).masked_fill(nxt.flatten(1) != 0, float("-inf"))
        best = q.max(1).values
        if CURED:
            best = best.clamp(min=-1e6)
        target = torch.randn(8) + 0.99 * (1 - done) * best  # FAULT
    taken = net(board).gather(1, torch.randint(9, (8, 1))).squeeze(1)
    loss = nn.functional.smooth_l1_loss(taken, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
