"""pytorch/pytorch (weight_norm of a zero weight), WaveNet-like: weight norm on a convolution initialised to zero
TRUTH op=aten._weight_norm|aten._weight_norm_interface|aten.div reason=division by zero lib=torch/nn/utils/parametrizations.py pattern=_weight_norm"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from torch.nn.utils.parametrizations import weight_norm
class Wave(nn.Module):
    def __init__(self):
        super().__init__(); self.i = weight_norm(nn.Conv1d(1, 8, 3, padding=1)); self.o = nn.Conv1d(8, 1, 1)
        if not CURED: nn.init.zeros_(self.o.weight)
        self.o = weight_norm(self.o)
    def forward(self, x): return self.o(torch.tanh(self.i(x)))
net = Wave(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(2):
    x = torch.randn(2, 1, 32); loss = F.l1_loss(net(x), x); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
