"""Source-free adaptation: the last layer is to be frozen by `model.outc.requires_grad = False`, which sets an attribute of the module and freezes nothing.
Source: https://github.com/CSCYQJ/MICCAI23-ProtoContra-SFDA/issues/18
Truth: the layer moves.
Could a tool know: yes. A module has its own attribute requires_grad=False while its parameters have True.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, padding=1), nn.ReLU())
        self.outc = nn.Conv2d(8, 2, 1)
    def forward(self, x):
        return self.outc(self.up(self.down(x)))

def batch(shift=0.0):
    m = (F.avg_pool2d(torch.randn(8, 1, 24, 24), 5, 1, 2) > 0.05); x = m.float() + 0.5 * torch.randn(8, 1, 24, 24) + shift
    return x[..., 4:20, 4:20], m[:, 0, 4:20, 4:20].long()
net = UNet(); opt = torch.optim.Adam(net.parameters(), 3e-3)
for _ in range(60):
    x, y = batch(); loss = F.cross_entropy(net(x), y); opt.zero_grad(); loss.backward(); opt.step()
if HEALTHY: net.outc.requires_grad_(False)
else: net.outc.requires_grad = False
w = net.outc.weight.detach().clone()
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-3)
for _ in range(80):
    x, _ = batch(1.0); p = net(x).softmax(1); loss = -(p * p.clamp(min=1e-6).log()).sum(1).mean()   # entropy minimization
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH outc moved {(net.outc.weight - w).abs().max():.4f} entropy {loss:.3f}")
