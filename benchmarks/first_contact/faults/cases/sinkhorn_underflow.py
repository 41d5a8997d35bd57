"""Sinkhorn's iteration in the plain domain: exp(-C/eps) underflows to a zero row, and a marginal is divided by 0.
Source: facebookresearch/swav#67, rajewsky-lab/novosparc#50."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)
proto = nn.Linear(8, 6, bias=False)
enc = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 8))
opt = torch.optim.SGD([*enc.parameters(), *proto.parameters()], lr=0.1)


@torch.no_grad()
def assign(scores, eps):
    if CURED:
        scores = scores - scores.max(1, keepdim=True).values
    q = torch.exp(scores / eps).T
    q = q / q.sum()
    for _ in range(3):
        q = q / q.sum(1, keepdim=True).clamp(min=1e-20) / 6
        q = q / q.sum(0, keepdim=True) / q.shape[1]  # FAULT
    return (q * q.shape[1]).T


for step in range(5):
    a = torch.randn(12, 10)
    view = enc(a + 0.05 * torch.randn_like(a))
    target_scores = proto(enc(a)).detach()
    if step == 3:
        target_scores[0] = target_scores[0] - 10  # an outlier, far from every prototype
    soft = assign(target_scores, 0.05)
    loss = -(soft * proto(view).log_softmax(-1)).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
