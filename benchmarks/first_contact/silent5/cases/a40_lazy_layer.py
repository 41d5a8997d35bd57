import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# stable-baselines3 1271: a layer is made in the first forward, the optimizer is made before
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = None
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        if self.proj is None:
            self.proj = nn.Linear(x.shape[1], 24)
        return self.head(torch.relu(self.proj(x)))


net = Net()
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
if HEALTHY:
    net(x[:1])
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(120):
    idx = torch.randint(1024, (64,))
    loss = F.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
