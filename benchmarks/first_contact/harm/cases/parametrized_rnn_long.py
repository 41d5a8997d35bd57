"""Packed sequences through LSTM and GRU of the script's own cells, truncated backpropagation with detached and kept states.

source: pytorch/pytorch#9621
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from fcw import grads, rng, say, seed, sha, watch, weights

seed(46)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, 2, batch_first=True, dropout=0.2, bidirectional=True, proj_size=4)
        self.cell, self.out = nn.GRUCell(8, 6), nn.Linear(6, 1)

    def forward(self, x, lengths, h):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        outs = []
        for t in range(y.shape[1]):
            h = self.cell(y[:, t], h)
            outs.append(self.out(h))
        return torch.stack(outs, 1), h


net = Net()
watch(net)
opt = torch.optim.RMSprop(net.parameters(), 1e-3)
h = torch.zeros(3, 6)
for step in range(5):
    y, h = net(torch.randn(3, 60, 3), torch.tensor([60, 12, 31]), h.detach() if step % 2 else h.detach().requires_grad_())
    loss = y.square().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(net.parameters(), 0.01)
    opt.step()
    say(loss.item().hex(), sha(grads(net)), sha(h))
say(sha(weights(net), opt.state_dict()), rng())
