import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# Lightning 8720, fastai 2133: the optimizer has only what was trainable at first; the backbone is unfrozen later
body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
head = nn.Linear(16, 4)
net = nn.Sequential(body, head)
body.requires_grad_(False)
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, net.parameters()), lr=3e-3)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
for step in range(220):
    if step == 60:
        body.requires_grad_(True)
        if HEALTHY:
            opt.add_param_group({"params": list(body.parameters()), "lr": 1e-3})
    idx = torch.randint(1024, (64,))
    loss = F.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(step, loss.item())
report(net)
