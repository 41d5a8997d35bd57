import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# attention without scaling, query and key grow under a high rate that is warmed up slowly
class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.q, self.k, self.v, self.o, self.f = (nn.Linear(d, d) for _ in range(5))

    def forward(self, x):
        w = (self.q(x) @ self.k(x).transpose(1, 2) * (32 ** -0.5 if HEALTHY else 1.0)).softmax(-1)
        x = x + self.o(w @ self.v(x))
        return x + F.relu(self.f(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.blocks, self.head = nn.Embedding(24, 32), nn.ModuleList(Block() for _ in range(4)), nn.Linear(32, 24)

    def forward(self, t):
        x = self.emb(t)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


net = LM()
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
for step in range(400):
    for g in opt.param_groups:
        g["lr"] = min(1e-3 + step * 1e-4, 0.01) if HEALTHY else 1e-3 + step * 5e-3
    t = torch.randint(24, (16, 10))
    loss = F.cross_entropy(net(t).flatten(0, 1), t.flip(1).flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
    if not math.isfinite(loss.item()) or loss.item() > 1e8:
        break
