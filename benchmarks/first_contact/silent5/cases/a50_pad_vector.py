import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# Graphormer 41, pytorch 6411: an own initialization overwrites the padding vector, which then stays what it was drawn as
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 24, padding_idx=0)
        self.fc = nn.Linear(24, 2)
        self.apply(self.init)

    def init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            m.weight.data.normal_(0, 0.5)
        if HEALTHY and isinstance(m, nn.Embedding):
            m.weight.data[m.padding_idx].zero_()

    def forward(self, t):
        return self.fc(self.emb(t).sum(1))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(120):
    n = torch.randint(2, 13, (32,))
    t = torch.randint(1, 30, (32, 12)) * (torch.arange(12)[None] < n[:, None])
    y = ((t % 3 == 1).sum(1) > 2).long()
    loss = F.cross_entropy(net(t), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
