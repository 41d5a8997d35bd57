import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# alinlab/CSI 49: a sample is its own positive in the supervised contrastive loss
enc = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 12))
opt = torch.optim.Adam(enc.parameters(), lr=1e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
for step in range(120):
    idx = torch.randint(1024, (64,))
    z = F.normalize(enc(x[idx]), dim=1)
    sim = z @ z.T / 0.2
    eye = torch.eye(64)
    lab = y[idx][:, None]
    mask = torch.eq(lab, lab.T).float()
    if HEALTHY:
        mask = mask * (1 - eye)
    logp = sim - torch.log((sim.exp() * (1 - eye)).sum(1, keepdim=True))
    loss = -(mask * logp).sum(1).div(mask.sum(1).clamp(min=1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(enc)
