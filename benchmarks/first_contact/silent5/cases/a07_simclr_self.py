import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# lightning-bolts 695 (SimCLR): a sample's similarity to itself stays among its negatives
enc = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.Adam(enc.parameters(), lr=1e-3)
data = torch.randn(512, 32)
for step in range(120):
    base = data[torch.randint(512, (48,))]
    a, b = base + 0.3 * torch.randn_like(base), base + 0.3 * torch.randn_like(base)
    z = F.normalize(enc(torch.cat([a, b])), dim=1)
    sim = z @ z.T / 0.2
    if HEALTHY:
        sim = sim.masked_fill(torch.eye(96, dtype=torch.bool), -1e9)
    labels = torch.cat([torch.arange(48, 96), torch.arange(48)])
    loss = F.cross_entropy(sim, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(enc)
