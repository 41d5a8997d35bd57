import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# skip-gram with negative sampling: SparseAdam, most rows seldom seen
V = 2000
p = 1 / torch.arange(1, V + 1).float()
a, b = nn.Embedding(V, 16, sparse=True), nn.Embedding(V, 16, sparse=True)
opt = torch.optim.SparseAdam([*a.parameters(), *b.parameters()], lr=5e-3)
for step in range(400):
    w = torch.multinomial(p, 64, True)
    c = (w + torch.randint(1, 4, (64,))) % V
    neg = torch.multinomial(p, 64 * 5, True).view(64, 5)
    x = a(w)
    loss = -F.logsigmoid((x * b(c)).sum(1)).mean() - F.logsigmoid(-(b(neg) @ x.unsqueeze(2)).squeeze(2)).sum(1).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print("steps", 400)
report(a, b)
