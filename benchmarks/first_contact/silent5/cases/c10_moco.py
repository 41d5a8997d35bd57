import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# momentum contrast with a queue
enc = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 16))
key = copy.deepcopy(enc).requires_grad_(False)
opt = torch.optim.SGD(enc.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
queue = F.normalize(torch.randn(256, 16), dim=1)
data = torch.randn(1024, 24)
for step in range(400):
    b = data[torch.randint(1024, (32,))]
    q = F.normalize(enc(b + 0.3 * torch.randn_like(b)), dim=1)
    with torch.no_grad():
        for a, c in zip(key.parameters(), enc.parameters()):
            a.mul_(0.99).add_(c, alpha=0.01)
        k = F.normalize(key(b + 0.3 * torch.randn_like(b)), dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
    opt.zero_grad(); loss.backward(); opt.step()
    queue = torch.cat([queue[32:], k])
print("steps", 400)
report(enc)
