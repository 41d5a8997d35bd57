"""own guard: the norm of the gradients is not finite, so the step is left out and gradients are cleared (karpathy-style; LAION-AI/CLIP open_clip)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)); opt = torch.optim.Adam(net.parameters(), 1e-3); left = 0
for step in range(25):
    x = torch.rand(16, 8)
    if step in (9, 17): x[2] = 0
    loss = (torch.sqrt((net[0](x) * x.sum(1, keepdim=True)).pow(2).sum(1)).mean() + net(x).mean().pow(2)); opt.zero_grad(); loss.backward()
    g = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if torch.isfinite(g): opt.step()
    else: left += 1; opt.zero_grad()
print(loss.item(), left); done(loss.detach(), net)
