import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# ibp_vae 3, vae_tacotron2 3: exp(logvar) is used as the standard deviation
enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-3)
W = torch.randn(3, 16)
for step in range(150):
    x = torch.tanh(torch.randn(64, 3) @ W)
    mu, lv = enc(x).chunk(2, 1)
    std = (0.5 * lv).exp() if HEALTHY else lv.exp()
    r = dec(mu + std * torch.randn_like(std))
    loss = ((r - x) ** 2).sum(1).mean() - 0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(enc, dec)
