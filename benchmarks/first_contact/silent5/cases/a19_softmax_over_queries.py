import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# catalyst 285, PyTorch-NLP 2: attention weights sum to one over the queries, not the keys
class Att(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.emb, self.q, self.k, self.v, self.o = nn.Embedding(20, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 20)

    def forward(self, t):
        x = self.emb(t)
        s = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        w = torch.softmax(s, dim=-1 if HEALTHY else 1)
        return self.o(x + w @ self.v(x))


net = Att()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(120):
    t = torch.randint(20, (16, 12))
    y = t.max(1, keepdim=True).values.expand(-1, 12)
    loss = F.cross_entropy(net(t).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
