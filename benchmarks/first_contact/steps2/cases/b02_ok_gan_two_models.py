import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

D = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(8, 1)); G = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
od, og = torch.optim.Adam(D.parameters(), 1e-3), torch.optim.RMSprop(G.parameters(), 1e-3)
for step in range(6):
    fake = G(torch.randn(8, 2))
    for _ in range(random.choice([1, 2])):
        l = F.softplus(D(fake.detach())).mean() + F.softplus(-D(torch.randn(8, 4))).mean(); od.zero_grad(); l.backward(); od.step()
    og.zero_grad(); F.softplus(-D(fake)).mean().backward(); og.step()
sha(D, G)
