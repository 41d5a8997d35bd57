"""pytorch/rl#1403 (PPO nan): advantages of a last minibatch of one normalised with the unbiased standard deviation
TRUTH op=aten.std reason=division by zero|argument|one element"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)); opt = torch.optim.Adam(net.parameters(), 3e-4)
S, A, ADV = torch.randn(33, 4), torch.randint(0, 2, (33,)), torch.randn(33)
with torch.no_grad(): OLD = F.log_softmax(net(S), 1).gather(1, A[:, None]).squeeze(1)
for idx in torch.arange(33).split(8):
    adv = ADV[idx]
    if CURED and len(idx) == 1: adv = torch.cat([adv, adv])
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # FAULT
    lp = F.log_softmax(net(S[idx]), 1).gather(1, A[idx][:, None]).squeeze(1)
    r = (lp - OLD[idx]).exp(); loss = -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean(); opt.zero_grad(); loss.backward(); opt.step(); print(loss.item())
done(loss.detach(), net)
