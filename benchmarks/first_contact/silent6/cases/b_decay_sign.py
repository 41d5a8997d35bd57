"""From chainer/chainer issue 261.
Diverges: a hand-written weight decay with the wrong sign: weights grow exponentially, whatever the loss says.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(24, 24), nn.LeakyReLU(.1))], nn.Linear(24, 1)); opt = torch.optim.SGD(net.parameters(), .02, momentum=.9); w = torch.randn(24, 1) / 5
for step in range(400):
    x = torch.randn(64, 24); loss = F.mse_loss(net(x), torch.sin(x @ w)); opt.zero_grad(); loss.backward()
    for p in net.parameters(): p.grad.add_(p.detach(), alpha=.12 * (.05 if H else -1))
    opt.step()
    if not log(step, loss): break
