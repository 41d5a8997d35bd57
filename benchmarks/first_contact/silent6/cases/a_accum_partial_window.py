"""From modelscope/ms-swift pull 10084.
Wrong: the epoch's last accumulation window has 2 micro-batches, its losses are divided by 4 all the same: half the gradient.
Could know: partly (the factor between loss and mean is 1/4 in a step of two backwards).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
X = torch.randn(220, 10); Y = X @ torch.randn(10, 1) + .1 * torch.randn(220, 1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=10, shuffle=True)   # 22 batches: 5 windows of 4, one of 2
net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1)); opt = torch.optim.SGD(net.parameters(), lr=0.05); G = 4; norms = []
for epoch in range(15):
    n = len(loader)
    for i, (x, y) in enumerate(loader):
        window = min(G, n - i // G * G)
        loss = F.mse_loss(net(x), y) / (window if H else G); loss.backward()
        if (i + 1) % G == 0 or i + 1 == n: opt.step(); opt.zero_grad()
    print(epoch, round(loss.item(), 4))
print("check: divisor of the window of two", 2 if H else 4)
