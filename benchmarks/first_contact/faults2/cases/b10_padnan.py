"""padding filled with nan on purpose to catch leaks, selected away by lengths before anything is summed; grads of used rows only"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(5, 16), nn.Tanh()); o = nn.Linear(16, 1); opt = torch.optim.Adam([*net.parameters(), *o.parameters()], 1e-3)
for step in range(25):
    n = torch.randint(2, 8, (4,)); x = torch.full((4, 8, 5), float("nan")); y = torch.randn(4)
    for i in range(4): x[i, :n[i]] = torch.randn(int(n[i]), 5)
    m = torch.arange(8)[None] < n[:, None]; h = net(x[m]); s = torch.zeros(4, 16).index_add_(0, torch.arange(4).repeat_interleave(n), h) / n[:, None]
    loss = F.mse_loss(o(s).squeeze(1), y); opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), net, o)
