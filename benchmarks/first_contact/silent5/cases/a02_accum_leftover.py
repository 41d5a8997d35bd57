import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# torchseq: the last micro-batches of an epoch never reach a step
x = torch.randn(440, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
K = 4
for epoch in range(12):
    opt.zero_grad()
    chunks = torch.randperm(440).split(40)  # 11 chunks: 4 + 4 + 3
    for i, idx in enumerate(chunks):
        last = i + 1 == len(chunks)
        k = len(chunks) % K if HEALTHY and i >= len(chunks) - len(chunks) % K else K
        loss = F.cross_entropy(net(x[idx]), y[idx]) / k
        loss.backward()
        if (i + 1) % K == 0 or (HEALTHY and last):
            opt.step()
            opt.zero_grad()
    print(epoch, loss.item())
report(net)
