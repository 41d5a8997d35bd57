"""CTC: targets longer than the input
Source: meijieru/crnn.pytorch#235, ypwhs/captcha_break#29
"""
import torch
import torch.nn.functional as F
from torch import nn

import kit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

def loss_at(k):
    logp = model(torch.randn(6, 2, 6)).log_softmax(-1)  # T N C
    n = 4 if k != 2 else 9
    targets = torch.randint(1, 4, (2, n))
    targets[:, 1::2] = 2
    targets[:, 0::2] = 1
    return F.ctc_loss(logp, targets, torch.tensor([6, 6]), torch.tensor([n, n]))

for k in range(5):
    opt.zero_grad()
    loss = loss_at(k)
    loss.backward()
    opt.step()
    print(k, kit.bits(loss), kit.digest(model, opt))
