"""kscalelabs/minppo#19 (eps for fp16): own layer norm in float16, eps 1e-8 rounds to 0
TRUTH op=aten.div reason=division by zero"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class LN(nn.Module):
    def __init__(self, d):
        super().__init__(); self.g = nn.Parameter(torch.ones(d)); self.eps = 1e-4 if CURED else 1e-8
    def forward(self, x):
        m = x.mean(-1, keepdim=True); s = torch.sqrt((x - m).pow(2).mean(-1, keepdim=True) + self.eps)
        return self.g * ((x - m) / s)  # FAULT
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(20, 16, padding_idx=0); self.n, self.o = LN(16), nn.Linear(16, 20)
    def forward(self, i): return self.o(self.n(self.e(i)))
net = Net().half(); opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(4):
    ids = torch.randint(1, 20, (2, 8))
    if step == 2: ids[1, 6:] = 0
    loss = F.cross_entropy(net(ids).float().flatten(0, 1), ids.flatten()); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
