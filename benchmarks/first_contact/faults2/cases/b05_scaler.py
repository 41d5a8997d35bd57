"""GradScaler's search from a scale that is too large, float16 autocast on CPU (pytorch docs: the first steps are skipped)"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
torch.manual_seed(0); torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)); opt = torch.optim.AdamW(net.parameters(), 1e-3); sc = torch.amp.GradScaler("cpu", init_scale=2.0 ** 24)
for step in range(25):
    x = torch.randn(16, 32)
    with torch.autocast("cpu", torch.float16): loss = F.mse_loss(net(x).float(), x)
    opt.zero_grad(); sc.scale(loss).backward(); sc.unscale_(opt); nn.utils.clip_grad_norm_(net.parameters(), 1.0); sc.step(opt); sc.update()
print(loss.item(), sc.get_scale()); done(loss.detach(), net)
