"""From tomhosking/torchseq issue 8.
Wrong: a step is made only when the cumulated batch is full; the rest of each epoch is computed, and cleared at the next epoch's begin.
Could know: yes, gradients of several backwards are cleared without a step, once an epoch.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
X = torch.randn(176, 8); Y = (X[:, 0] * X[:, 1] > 0).long(); order = list(range(0, 176, 16))     # 11 batches, windows of 4: 3 left over
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2)); opt = torch.optim.Adam(net.parameters(), lr=3e-3); lost = 0
for epoch in range(20):
    opt.zero_grad(); cum = 0
    for k, i in enumerate(order):
        x, y = X[i:i + 16], Y[i:i + 16]; loss = F.cross_entropy(net(x), y, reduction="sum") / 64; loss.backward(); cum += len(x)
        if cum >= 64 or (H and k + 1 == len(order)): opt.step(); opt.zero_grad(); cum = 0
    lost += cum; print(epoch, round(loss.item(), 4))
print("check: samples whose gradients were thrown away", lost)
