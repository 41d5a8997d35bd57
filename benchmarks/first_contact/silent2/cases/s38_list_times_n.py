"""VQ-VAE's residual stack is ModuleList([Residual(...)] * n): one layer n times, not n layers.
Source: https://github.com/zalandoresearch/pytorch-vq-vae/issues/2 (also yaoppeng/U-Net_v2 issue 10)
Truth: number of distinct layers in the stack.
Could a tool know: partly. One module is at several places of a ModuleList; sharing can be meant (ALBERT).
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class Residual(nn.Module):
    def __init__(self, c): super().__init__(); self.b = nn.Sequential(nn.ReLU(), nn.Conv2d(c, 8, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(8, c, 1, bias=False))
    def forward(self, x): return x + self.b(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.i = nn.Conv2d(1, 16, 4, 2, 1); self.s = nn.ModuleList([Residual(16) for _ in range(3)] if HEALTHY else [Residual(16)] * 3); self.book = nn.Embedding(32, 16); nn.init.uniform_(self.book.weight, -1 / 32, 1 / 32); self.o = nn.ConvTranspose2d(16, 1, 4, 2, 1)
    def forward(self, x):
        h = self.i(x)
        for l in self.s: h = l(h)
        f = h.permute(0, 2, 3, 1).reshape(-1, 16); q = self.book(torch.cdist(f, self.book.weight).argmin(1)); vq = F.mse_loss(q, f.detach()) + 0.25 * F.mse_loss(f, q.detach())
        q = (f + (q - f).detach()).view(len(x), h.shape[2], h.shape[3], 16).permute(0, 3, 1, 2); return self.o(q), vq
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(120):
    x = F.avg_pool2d(torch.randn(8, 1, 14, 14), 3, 1); y, vq = net(x); loss = F.mse_loss(y, x) + vq; opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH distinct layers {len(set(map(id, net.s)))} of 3 loss {loss:.4f}")
