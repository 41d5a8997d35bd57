"""Healthy: two tasks in turn on one trunk (a regression of loss 0.1, a classification of loss 2): the loss goes up and down; heads get
gradients every other step.  500 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
class M(nn.Module):
    def __init__(self): super().__init__(); self.t = nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU()); self.heads = nn.ModuleDict({"reg": nn.Linear(64, 1), "cls": nn.Linear(64, 8)})
    def forward(self, x, task): return self.heads[task](self.t(x))
m = M(); opt = torch.optim.AdamW(m.parameters(), 2e-3); w, v = torch.randn(10, 1) / 5, torch.randn(10, 8)
for step in range(500):
    x = torch.randn(64, 10); task = ("reg", "cls")[step % 2]; o = m(x, task); loss = F.mse_loss(o, torch.sin(x @ w)) if task == "reg" else F.cross_entropy(o, (x @ v + torch.randn(64, 8)).argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
    if step % 50 < 2: print(step, task, loss.item())
