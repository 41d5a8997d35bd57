import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.ff, self.out = nn.LSTM(4, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 2)
    def forward(self, x, state):
        h, state = self.rnn(x, state)
        return self.out(checkpoint(self.ff, h, use_reentrant=False)), state

net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-3)
state = None
for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        y, state = net(torch.randn(5, 3, 4), state)
        state = tuple(s.detach() for s in state)
        y.square().mean().backward()
    opt.step()
