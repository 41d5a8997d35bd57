"""Invented (hand-made loss scale): the scale is doubled every 25 steps and overflows are neither looked for nor skipped.
Diverges: float16 gradients become inf once the scale is too large, and the update makes the weights nan.
"""
import sys, math, copy, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def log(step, loss):
    v = float(loss); print("step", step, "loss", v, flush=True); return math.isfinite(v) and abs(v) < 1e30
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).half(); master = [p.detach().float().clone() for p in net.parameters()]; opt = torch.optim.SGD(master, .05, momentum=.9); scale = 128.; w = torch.randn(32, 4)
for step in range(400):
    x = torch.randn(32, 32); out = net(x.half()); loss = F.cross_entropy(out.float(), (x @ w).argmax(1)); (loss * scale).backward()
    bad = not all(torch.isfinite(p.grad).all() for p in net.parameters())
    if not (H and bad):
        for m, p in zip(master, net.parameters()): m.grad = p.grad.float() / scale
        opt.step()
        with torch.no_grad(): [p.copy_(m) for m, p in zip(master, net.parameters())]
    net.zero_grad(); scale = scale / 2 if H and bad else scale * 2 if step % 25 == 24 else scale
    if not log(step, loss): break
