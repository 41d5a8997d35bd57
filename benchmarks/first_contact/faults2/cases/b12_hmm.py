"""log-space alignment: log(0) = -inf in a forward algorithm's start state, logaddexp, ctc with zero_infinity=True on an impossible target (wenet#2299)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5)); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(25):
    x = torch.randn(6, 3, 6); lp = net(x).log_softmax(-1); n = torch.tensor([2, 7 if step % 5 == 2 else 3, 1]); y = torch.randint(1, 5, (int(n.sum()),))
    loss = F.ctc_loss(lp, y, torch.full((3,), 6), n, zero_infinity=True, reduction="sum")
    a = torch.tensor([1.0, 0.0, 0.0]).log()
    for t in range(6): a = torch.logaddexp(a, torch.cat([torch.tensor([float("-inf")]), a[:-1]])) + lp[t, 0, :3]
    loss = loss - 0.1 * a[-1]; opt.zero_grad(); loss.backward(); opt.step()
print(loss.item()); done(loss.detach(), net)
