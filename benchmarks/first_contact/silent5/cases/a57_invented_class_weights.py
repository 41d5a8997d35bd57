import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# invented: the class weights are the counts, not their inverse: the rare class weighs least
x = torch.randn(2048, 16)
y = ((x @ torch.randn(16)) > 5).long()
counts = torch.bincount(y, minlength=2).float()
w = (1 / counts if HEALTHY else counts)
w = w / w.sum() * 2
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(120):
    idx = torch.randint(2048, (64,))
    loss = F.cross_entropy(net(x[idx]), y[idx], weight=w)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
