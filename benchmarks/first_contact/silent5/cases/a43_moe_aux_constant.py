import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# hyper-parallel 752: fractions (experts) and scores (top-k) are multiplied over all pairs: the balance loss is constant
class Router(nn.Module):
    def __init__(self, d=16, n=6, k=2):
        super().__init__()
        self.n, self.k, self.gate = n, k, nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(n))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        s, i = p.topk(self.k)
        s = s / s.sum(-1, keepdim=True)
        frac = F.one_hot(i, self.n).float().sum(1).mean(0) / self.k
        if HEALTHY:
            self.aux = self.n * (frac * p.mean(0)).sum()
        else:
            self.aux = self.n * (frac[:, None] * s.mean(0)[None]).sum()
        out = x
        for e in range(self.n):
            w = (s * (i == e)).sum(-1, keepdim=True)
            out = out + w * self.experts[e](x)
        return out


net, head = Router(), nn.Linear(16, 4)
opt = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=2e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
for step in range(100):
    idx = torch.randint(1024, (64,))
    loss = F.cross_entropy(head(net(x[idx])), y[idx]) + 0.1 * net.aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(step, loss.item(), net.aux.item())
report(net, head)
