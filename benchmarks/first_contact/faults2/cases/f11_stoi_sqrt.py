"""mpariente/pytorch_stoi#14: sqrt(sum of squares) + EPS, a silent frame's energy is 0
TRUTH op=aten.div|aten.mul reason=gradient of sqrt or norm at zero phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class Enh(nn.Module):
    def __init__(self):
        super().__init__(); self.g = nn.GRU(65, 32, batch_first=True); self.m = nn.Linear(32, 65)
    def forward(self, spec):
        return torch.sigmoid(self.m(self.g(spec)[0])) * spec
def stoi_loss(x, y):
    ex = x.pow(2).sum(-1) + (1e-8 if CURED else 0.0)
    nx = torch.sqrt(ex) + 1e-8  # FAULT
    ny = y.norm(dim=-1) + 1e-8
    return -((x * y).sum(-1) / (nx * ny)).mean()
net = Enh(); opt = torch.optim.Adam(net.parameters(), 1e-3); win = torch.hann_window(128)
for step in range(5):
    w = torch.randn(3, 1024)
    if step == 2: w[1, 300:] = 0
    s = torch.stft(w, 128, 64, window=win, return_complex=True).abs().transpose(1, 2)
    loss = stoi_loss(net(s), s); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
