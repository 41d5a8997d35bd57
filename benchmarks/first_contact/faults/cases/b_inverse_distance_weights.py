"""Benign: inverse-distance interpolation of PointNet++: 1 / 0 is inf where points coincide, and clamp takes it away; no gradient.
Source: PointNet++ feature propagation (Qi et al. 2017)."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(8, 16, 1), nn.ReLU(), nn.Conv1d(16, 3, 1))
lift = nn.Linear(3, 8)
opt = torch.optim.Adam([*net.parameters(), *lift.parameters()], lr=1e-3)
for step in range(5):
    dense = torch.rand(2, 30, 3)
    coarse = dense[:, :10].clone()
    with torch.no_grad():
        dist, idx = torch.cdist(dense, coarse, compute_mode="donot_use_mm_for_euclid_dist").topk(3, largest=False)
        weight = (1 / dist).clamp(max=1e6)
        weight = weight / weight.sum(-1, keepdim=True)
    feats = lift(coarse)
    near = torch.gather(feats[:, None].expand(-1, 30, -1, -1), 2, idx[..., None].expand(-1, -1, -1, 8))
    h = (weight[..., None] * near).sum(2).transpose(1, 2)
    loss = nn.functional.cross_entropy(net(h), torch.randint(3, (2, 30)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
assert loss.isfinite()
