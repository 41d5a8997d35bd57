"""Face recognition: the ArcFace head is its own module with a weight, and the optimizer has only the backbone's parameters.
Source: https://github.com/TreB1eN/InsightFace_Pytorch/issues/71 (also wujiyang/Face_Pytorch issue 10)
Truth: the head's kernel is bitwise unchanged while its gradient is not zero.
Could a tool know: yes. A parameter gets gradients and is in no optimizer.
"""
import sys, math, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class Arcface(nn.Module):
    def __init__(self, d, n, s=16.0, m=0.2):
        super().__init__(); self.kernel, self.s, self.m = nn.Parameter(torch.randn(d, n)), s, m
    def forward(self, e, y):
        cos = (F.normalize(e) @ F.normalize(self.kernel, dim=0)).clamp(-0.999, 0.999)
        hot = F.one_hot(y, cos.shape[1])
        return self.s * torch.where(hot.bool(), (cos.acos() + self.m).cos(), cos)

backbone = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.PReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.PReLU(), nn.Flatten(), nn.Linear(128, 16))
head = Arcface(16, 20); first = head.kernel.detach().clone()
params = list(backbone.parameters()) + (list(head.parameters()) if HEALTHY else [])
opt = torch.optim.SGD(params, 0.05, momentum=0.9)
faces = torch.randn(20, 1, 8, 8)
for step in range(150):
    y = torch.randint(0, 20, (32,)); x = faces[y] + 0.5 * torch.randn(32, 1, 8, 8)
    loss = F.cross_entropy(head(backbone(x), y), y)
    opt.zero_grad(); loss.backward(); opt.step()
print(f"TRUTH kernel moved {(head.kernel - first).abs().max():.3f} its gradient {head.kernel.grad.abs().max():.3f} loss {loss:.3f}")
