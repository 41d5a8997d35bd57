import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# denoising-diffusion-pytorch 19: linspace(0, steps, steps) with steps = timesteps + 1
def betas(timesteps, s=0.008):
    steps = timesteps + 1
    x = torch.linspace(0, timesteps if HEALTHY else steps, steps)
    a = torch.cos(((x / (timesteps if HEALTHY else steps)) + s) / (1 + s) * math.pi * 0.5) ** 2
    a = a / a[0]
    if not HEALTHY:
        a = a[:-1].clone()  # and one entry too few
        return (1 - a[1:] / a[:-1]).clip(0, 0.999)
    return (1 - a[1:] / a[:-1]).clip(0, 0.999)


b = betas(100)
abar = torch.cumprod(1 - b, 0)
net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(150):
    x0 = torch.randn(64, 8).sign() * 0.8
    t = torch.randint(len(abar), (64,))
    e = torch.randn_like(x0)
    xt = abar[t].sqrt()[:, None] * x0 + (1 - abar[t]).sqrt()[:, None] * e
    loss = F.mse_loss(net(torch.cat([xt, t[:, None] / 100], 1)), e)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
