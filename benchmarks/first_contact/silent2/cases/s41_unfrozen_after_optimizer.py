"""Gradual unfreezing: the optimizer was made with the parameters that were trainable then; what is unfrozen at step 60 is in no optimizer.
Source: https://github.com/luxonis/luxonis-train/pull/432 (also fastai issue 2133)
Truth: the backbone does not move after it is unfrozen.
Could a tool know: yes. Parameters get gradients and are in no optimizer (from step 60 on).
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
backbone = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU()); neck = nn.Conv2d(24, 24, 1)
class Det(nn.Module):
    def __init__(self): super().__init__(); self.backbone, self.neck, self.cls, self.box = backbone, neck, nn.Conv2d(24, 1, 1), nn.Conv2d(24, 2, 1)
    def forward(self, x):
        self.backbone.train(self.training and any(p.requires_grad for p in self.backbone.parameters())); h = self.neck(self.backbone(x)).relu(); return self.cls(h), self.box(h)
net = Det(); net.backbone.requires_grad_(False); first = net.backbone[0].weight.detach().clone()
opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, net.parameters()), 2e-3)
for step in range(240):
    if step == 60:
        net.backbone.requires_grad_(True)
        if HEALTHY: opt.add_param_group({"params": list(net.backbone.parameters()), "lr": 5e-4})
    c = torch.randint(0, 4, (16, 2)); x = 0.3 * torch.randn(16, 1, 16, 16); t = torch.zeros(16, 1, 4, 4); r = torch.arange(16); t[r, 0, c[:, 0], c[:, 1]] = 1
    x[r, 0, c[:, 0] * 4 + 1, c[:, 1] * 4 + 2] += 2.5
    k, b = net(x); loss = F.binary_cross_entropy_with_logits(k, t) + F.smooth_l1_loss(b[r, :, c[:, 0], c[:, 1]], c / 4.0)
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH backbone moved {(net.backbone[0].weight - first).abs().max():.5f} loss {loss:.3f}")
