import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# neural_sp: the loss is not divided by the number of accumulated batches
x = torch.randn(2048, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
K = 8
step = 0
for epoch in range(4):
    perm = torch.randperm(2048)
    for i, idx in enumerate(perm.split(32)):
        loss = F.cross_entropy(net(x[idx]), y[idx])
        (loss / K if HEALTHY else loss).backward()
        if (i + 1) % K == 0:
            opt.step()
            opt.zero_grad()
            step += 1
            print(step, loss.item())
report(net)
