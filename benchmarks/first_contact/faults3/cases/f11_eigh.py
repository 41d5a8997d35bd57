"""Point cloud network with local frames from the covariance's eigenvectors (PCA frames); padded neighbourhoods repeat one point.
Source: pytorch/pytorch#49886, jax-ml/jax#2311, Pzoom522/ProcrustEs-KGE#2 (degenerate eigenvalues)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
CURED = "--cured" in sys.argv


class FrameNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
        self.feat = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64))
        self.cls = nn.Linear(64, 4)

    def forward(self, groups):  # batch, neighbourhoods, points, 3
        weight = self.offset(groups).sigmoid()
        mean = (weight * groups).sum(2, keepdim=True) / weight.sum(2, keepdim=True)
        x = groups - mean
        cov = (weight * x).transpose(2, 3) @ x / groups.shape[2] + 1e-4 * torch.eye(3)
        if CURED:
            cov = cov + torch.diag(torch.tensor([0.0, 1e-3, 2e-3]))
        _, frame = torch.linalg.eigh(cov)  # FAULT
        return self.cls(self.feat(x @ frame).amax((1, 2)))


net = FrameNet()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
losses = []
for step in range(12):
    label = torch.randint(0, 4, (8,))
    groups = torch.randn(8, 6, 12, 3) * torch.stack([torch.ones(8), 1 + label.float(), torch.full((8,), 0.3)], 1)[:, None, None]
    if step == 11:
        groups[2, 5] = groups[2, 5, :1]  # too few points in the radius: the first one is repeated
        groups[2, 5] = groups[2, 5].round()
    loss = F.cross_entropy(net(groups), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in net.parameters()))
