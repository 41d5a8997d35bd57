import math
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

# src: https://github.com/Li-Chongyi/Zero-DCE_extension/issues/2 and https://github.com/mpariente/pytorch_stoi/issues/7
class Enh(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Conv1d(1, 8, 5, padding=2, bias=False); self.o = nn.Conv1d(8, 1, 1, bias=False)
    def forward(self, x):
        y = self.o(torch.tanh(self.c(x)))
        ey = torch.sqrt((y ** 2).sum(-1)); ex = torch.sqrt((x ** 2).sum(-1))
        snr = torch.log10(ex) - torch.log10(((x - y) ** 2).sum(-1))
        return -snr.mean() + (ey - ex).abs().mean()
model = Enh(); opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(7):
    x = torch.randn(4, 1, 32)
    if step == 3: x[2] = 0
    loss = model(x); opt.zero_grad(); loss.backward(); opt.step(); print(step, repr(loss.item()))
