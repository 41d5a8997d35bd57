"""ypwhs/captcha_break#29, pytorch/pytorch#3363: CTC target longer than the input, the loss is inf
TRUTH op=aten._ctc_loss|aten.ctc_loss reason=argument|unknown|inf"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

class CRNN(nn.Module):
    def __init__(self):
        super().__init__(); self.c = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU()); self.r = nn.LSTM(8 * 8, 16, bidirectional=True); self.o = nn.Linear(32, 12)
    def forward(self, x):
        f = self.c(x); f = f.permute(3, 0, 1, 2).flatten(2); return self.o(self.r(f)[0]).log_softmax(-1)
net = CRNN(); opt = torch.optim.RMSprop(net.parameters(), 1e-3)
for step in range(4):
    x = torch.rand(4, 1, 16, 24); n = [4, 5, 7, 5] if step == 2 and not CURED else [4, 5, 6, 6]
    y = torch.full((sum(n),), 3) if step == 2 else torch.arange(sum(n)) % 11 + 1   # 7 equal letters need 13 frames, there are 12
    lp = net(x)
    loss = F.ctc_loss(lp, y, torch.full((4,), 12), torch.tensor(n))  # FAULT
    opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
done(loss.detach(), net)
