import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# deepALplus 5: the features for one term are computed under no_grad: their network gets nothing of it
feat = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
clf, disc = nn.Linear(8, 4), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
of, od = torch.optim.Adam([*feat.parameters(), *clf.parameters()], 1e-3), torch.optim.Adam(disc.parameters(), 1e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
u = torch.randn(1024, 16) + 0.7
for step in range(120):
    i, j = torch.randint(1024, (32,)), torch.randint(1024, (32,))
    disc.requires_grad_(False)
    zl = feat(x[i])
    with torch.set_grad_enabled(HEALTHY):
        zu = feat(u[j])
        wl = feat(x[i])
    loss = F.cross_entropy(clf(zl), y[i]) + 0.5 * (disc(wl).mean() - disc(zu).mean())
    of.zero_grad()
    loss.backward()
    of.step()
    disc.requires_grad_(True)
    with torch.no_grad():
        zl, zu = feat(x[i]), feat(u[j])
    dl = disc(zu).mean() - disc(zl).mean() + 0.1 * (disc(zu) ** 2).mean() + 0.1 * (disc(zl) ** 2).mean()
    od.zero_grad()
    dl.backward()
    od.step()
    if step % 30 == 0:
        print(step, loss.item(), dl.item())
report(feat, clf, disc)
