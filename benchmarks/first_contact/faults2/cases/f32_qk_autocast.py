"""THUDM/CogView (arXiv 2105.13290, PB-relax): q k^T before scaling exceeds float16 under autocast; GradScaler on CPU
TRUTH op=aten.bmm|aten.matmul|aten.mm reason=overflow of the dtype"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Block(nn.Module):
    def __init__(self, d=64):
        super().__init__(); self.n, self.q, self.k, self.v, self.o = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        h = self.n(x); q, k, v = self.q(h), self.k(h), self.v(h)
        if CURED: q, k = q / 64, k
        s = q @ k.transpose(1, 2)  # FAULT
        return x + self.o(torch.softmax(s / 8.0, -1) @ v)
net = nn.Sequential(nn.Linear(8, 64), Block(), Block(), nn.Linear(64, 8)); opt = torch.optim.AdamW(net.parameters(), 1e-3)
with torch.no_grad(): net[2].q.weight.mul_(200); net[2].k.weight.mul_(200)   # grown by a long training
sc = torch.amp.GradScaler("cpu", init_scale=128.)
for step in range(3):
    x = torch.randn(4, 16, 8)
    with torch.autocast("cpu", torch.float16): loss = F.mse_loss(net(x).float(), x)
    opt.zero_grad(); sc.scale(loss).backward(); sc.step(opt); sc.update(); print(step, loss.item())
done(loss.detach(), net)
