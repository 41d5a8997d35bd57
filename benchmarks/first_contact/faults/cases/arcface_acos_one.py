"""ArcFace head: acos of a cosine that is exactly 1, whose derivative is infinite.
Source: ronghuaiyang/arcface-pytorch#68."""
import sys
import torch
import torch.nn.functional as F
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class ArcFace(nn.Module):
    def __init__(self, width, classes, scale=16.0, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, width))
        self.scale, self.margin = scale, margin

    def forward(self, feats, labels):
        cos = F.linear(F.normalize(feats), F.normalize(self.weight))
        cos = cos.clamp(-1 + 1e-4, 1 - 1e-4) if CURED else cos.clamp(-1, 1)
        theta = torch.acos(cos)  # FAULT
        hot = F.one_hot(labels, cos.shape[1])
        return F.cross_entropy(self.scale * torch.cos(theta + self.margin * hot), labels)


backbone = nn.Sequential(nn.Linear(12, 16), nn.PReLU(), nn.Linear(16, 2, bias=False))
head = ArcFace(2, 5)
opt = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=1e-3)
for step in range(5):
    feats = backbone(torch.randn(8, 12))
    labels = torch.randint(5, (8,))
    if step == 3:
        with torch.no_grad():  # class centres are re-set to axes, as some recipes do, and a sample lies on one
            head.weight[0] = torch.tensor([1.0, 0.0])
        feats = feats * torch.tensor([1.0, 0.0]) + torch.tensor([10.0, 0.0])
    loss = head(feats, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, float(loss))
