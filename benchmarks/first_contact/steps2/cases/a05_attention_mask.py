import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Attention(nn.Module):
    def __init__(self, d=8):
        super().__init__(); self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(self, x, pad):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = q @ k.transpose(1, 2) / 8 ** 0.5
        big = torch.finfo(s.dtype).min
        s = s + pad[:, None, :] * big + pad[:, :, None] * big  # two masks: min + min is -inf
        w = (s - s.amax(-1, keepdim=True)).exp()
        return self.out(w / w.sum(-1, keepdim=True) @ v)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = Attention(), Attention()
    def forward(self, x, pad):
        x = x + self.a(x, pad)
        return (x + self.b(x, pad)).mean((1, 2))
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    pad = torch.zeros(3, 5); pad[0, 3:] = 1
    if step < 2: pad[:] = 0
    if step == 2: pad[1, :] = 1
    loss = net(torch.randn(3, 5, 8), pad).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
