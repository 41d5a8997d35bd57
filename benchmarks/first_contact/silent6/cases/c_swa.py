"""Healthy: stochastic weight averaging with SWALR from step 250 on, update_bn at the end, evaluation of the average now and then.  450 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
net = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, 4)); swa_model = AveragedModel(net); opt = torch.optim.SGD(net.parameters(), .1, momentum=.9); sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 250); swa = SWALR(opt, swa_lr=.05, anneal_epochs=20); w = torch.randn(12, 4)
def b(): x = torch.randn(64, 12); return x, (x @ w).argmax(1)
for step in range(450):
    net.train(); x, y = b(); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step < 250: sch.step()
    else: swa_model.update_parameters(net); swa.step()
    if step % 50 == 0: print(step, loss.item())
update_bn([b()[0] for _ in range(10)], swa_model); swa_model.eval()
with torch.no_grad(): x, y = b(); print("average", F.cross_entropy(swa_model(x), y).item())
