"""From ImCharlesY/AdaInt pull 12 (also open-mmlab/mmpretrain pull 318).
Wrong: the backbone's pretrained weights are loaded, then init_weights() of the whole model initializes every convolution anew.
Could know: partly (weights that load_state_dict wrote are written again before the first step).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
def backbone(): return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
P = torch.randn(4, 3, 16, 16)
def data(n=32): y = torch.randint(0, 4, (n,)); return P[y] + 1.5 * torch.randn(n, 3, 16, 16), y
pre = nn.Sequential(backbone(), nn.Linear(32, 4)); o = torch.optim.Adam(pre.parameters(), 3e-3)
for _ in range(120): x, y = data(); l = F.cross_entropy(pre(x), y); o.zero_grad(); l.backward(); o.step()
checkpoint = pre[0].state_dict()
class AiLUT(nn.Module):
    def __init__(self):
        super().__init__(); self.backbone = backbone(); self.backbone.load_state_dict(checkpoint); self.head = nn.Linear(32, 4); self.init_weights()
    def init_weights(self):
        for m in (self.head.modules() if H else self.modules()):
            if isinstance(m, (nn.Conv2d, nn.Linear)): nn.init.xavier_normal_(m.weight); nn.init.zeros_(m.bias)
    def forward(self, x): return self.head(self.backbone(x))
m = AiLUT(); print("check: backbone has the pretrained weights", torch.equal(m.backbone[0].weight, checkpoint["0.weight"])); opt = torch.optim.Adam(m.parameters(), 1e-3)
for step in range(80):
    x, y = data(); loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
