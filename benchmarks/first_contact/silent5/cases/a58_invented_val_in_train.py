import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# invented: batch norm's statistics are recomputed on one batch after training: reset_running_stats() is called in each epoch before its evaluation
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.body(x)


x = torch.randn(1024, 16) * 2 + 1
y = (x @ torch.randn(16, 4)).argmax(1)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(12):
    net.train()
    for idx in torch.randperm(896).split(64):
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    if not HEALTHY:
        for m in net.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.reset_running_stats()
    net.eval()
    with torch.no_grad():
        print(epoch, loss.item(), (net(x[896:]).argmax(1) == y[896:]).float().mean().item())
report(net)
