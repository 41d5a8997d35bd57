import torch, torch.nn.functional as F, random, time, hashlib, threading
from torch import nn
torch.manual_seed(0); random.seed(0)

def sha(*models):
    h = hashlib.sha256()
    for m in models:
        for k, v in m.state_dict().items(): h.update(v.detach().numpy().tobytes())
    print("SHA", h.hexdigest()[:16], random.random(), torch.rand(1).item())

log = []
class VQ(nn.Module):  # codebook by moving averages, changed within forward; usage counts; dead codes drawn anew
    def __init__(self):
        super().__init__(); self.register_buffer("code", torch.randn(6, 4)); self.register_buffer("n", torch.ones(6)); self.register_buffer("s", self.code.clone())
    def forward(self, z):
        i = torch.cdist(z, self.code).argmin(-1)
        q = self.code[i]
        if self.training:
            with torch.no_grad():
                one = F.one_hot(i, 6).float()
                self.n.mul_(0.9).add_(0.1 * one.sum(0)); self.s.mul_(0.9).add_(0.1 * one.T @ z)
                self.code.copy_(self.s / self.n[:, None].clamp_min(1e-5))
                dead = self.n < 0.5
                if dead.any(): self.code[dead] = z[torch.randint(len(z), (int(dead.sum()),))]
        return z + (q - z).detach(), (z - q.detach()).square().mean()
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.vq, self.b = nn.utils.spectral_norm(nn.Linear(4, 4)), VQ(), nn.Linear(4, 4)
    def forward(self, x):
        q, c = self.vq(self.a(x)); return self.b(q), c
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-2)
net.a.register_forward_hook(lambda m, i, o: log.append(o.detach().mean().item()))
net.b.register_full_backward_hook(lambda m, gi, go: log.append(go[0].norm().item()))
for step in range(6):
    x = torch.randn(16, 4); y, c = net(x)
    loss = F.mse_loss(y, x) + 0.25 * c; opt.zero_grad(); loss.backward(); opt.step()
sha(net); print(len(log), sum(log))
