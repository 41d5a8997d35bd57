import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# Muesli-lunarlander 1: the buffer holds the same list again and again: each episode is the last one
q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
replay, ep = [], []
for episode in range(40):
    if HEALTHY:
        ep = []
    else:
        ep.clear()
    s = torch.randn(4)
    for t in range(12):
        a = int(torch.randint(2, ()))
        s2 = 0.9 * s + 0.3 * torch.randn(4) + (0.2 if a else -0.2)
        ep.append((s, a, float(s2[0])))
        s = s2
    replay.append(ep)
    for _ in range(5):
        picks = [replay[i][j] for i, j in zip(torch.randint(len(replay), (32,)).tolist(), torch.randint(12, (32,)).tolist())]
        S, A, R = torch.stack([p[0] for p in picks]), torch.tensor([p[1] for p in picks]), torch.tensor([p[2] for p in picks])
        loss = F.mse_loss(q(S).gather(1, A[:, None]).squeeze(1), R)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if episode % 10 == 0:
        print(episode, loss.item())
report(q)
