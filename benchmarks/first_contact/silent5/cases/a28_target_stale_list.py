import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# AgileRL 464: the soft update goes on with the parameters of a network that has been replaced; the target never moves
q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target = copy.deepcopy(q)
pairs = list(zip(target.parameters(), q.parameters()))
target = copy.deepcopy(target)  # wrapped again
target.requires_grad_(False)
if HEALTHY:
    pairs = list(zip(target.parameters(), q.parameters()))
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
S = torch.randn(512, 4)
A = torch.randint(2, (512,))
S2 = 0.9 * S + 0.2 * torch.randn(512, 4) + 0.1 * A[:, None]
R = S2[:, 0]
for step in range(220):
    idx = torch.randint(512, (32,))
    with torch.no_grad():
        goal = R[idx] + 0.95 * target(S2[idx]).max(1).values
    loss = F.mse_loss(q(S[idx]).gather(1, A[idx, None]).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, p in pairs:
            t.lerp_(p, 0.02)
    if step % 40 == 0:
        print(step, loss.item())
report(q)
