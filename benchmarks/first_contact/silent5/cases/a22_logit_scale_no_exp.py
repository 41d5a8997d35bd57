import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# M3D 52, 64: the temperature is initialized as a logarithm and used without exp
class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(24, 16), nn.Linear(20, 16)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, a, b):
        a, b = F.normalize(self.image(a), dim=-1), F.normalize(self.text(b), dim=-1)
        scale = self.logit_scale.exp() if HEALTHY else self.logit_scale
        return scale * a @ b.T


net = Clip()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
A, B = torch.randn(8, 24), torch.randn(8, 20)
for step in range(150):
    z = torch.randn(48, 8)
    logits = net(z @ A, z @ B + 0.1 * torch.randn(48, 20))
    t = torch.arange(48)
    loss = (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
