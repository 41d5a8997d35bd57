"""Mean teacher with a bias-corrected average; its counter starts anew at each cycle, so the correction is 1 - decay**0.
Source: invented after A. Tarvainen and H. Valpola, arXiv 1703.01780, and Adam's bias correction."""
import sys, math, copy
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)
CURED = "--cured" in sys.argv


class DebiasedEMA:
    def __init__(self, model, decay=0.9):
        self.decay, self.count = decay, 0
        self.shadow = {k: torch.zeros_like(v) for k, v in model.named_parameters()}
        self.teacher = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for k, p in model.named_parameters():
            self.shadow[k].mul_(self.decay).add_(p, alpha=1 - self.decay)
        self.count += 1

    @torch.no_grad()
    def sync(self):
        correction = torch.tensor(1 - self.decay ** self.count)
        if CURED and self.count == 0:
            return
        for k, p in self.teacher.named_parameters():
            p.copy_(self.shadow[k] / correction)  # FAULT

    def restart(self):
        self.count = 0
        for v in self.shadow.values():
            v.zero_()


student = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 4))
ema = DebiasedEMA(student)
opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(20):
    if step == 12:
        ema.restart()  # a new cycle of the learning rate
    x = torch.randn(32, 10)
    y = (x[:, :4]).argmax(1)
    logits = student(x + 0.1 * torch.randn_like(x))
    loss = F.cross_entropy(logits[:8], y[:8])
    if step >= 2:
        ema.sync()
        with torch.no_grad():
            soft = ema.teacher(x).softmax(1)
        loss = loss + F.mse_loss(logits.softmax(1), soft)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update(student)
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in student.parameters()))
