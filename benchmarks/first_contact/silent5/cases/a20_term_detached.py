import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# SimAC 3: a term of the loss is added as a number
enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
head = nn.Linear(8, 4)
opt = torch.optim.Adam([*enc.parameters(), *head.parameters()], lr=2e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
centers = torch.randn(4, 8)
for step in range(120):
    idx = torch.randint(1024, (64,))
    f = enc(x[idx])
    loss = F.cross_entropy(head(f), y[idx])
    target_loss = F.mse_loss(f, centers[y[idx]])
    loss = loss + (target_loss if HEALTHY else target_loss.detach().item())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item(), target_loss.item())
report(enc, head)
