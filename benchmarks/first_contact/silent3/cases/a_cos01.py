"""Pairs are labelled 1 / 0, and CosineEmbeddingLoss wants 1 / -1: pairs with 0 give a loss of 0, so nothing pushes apart.
Source: https://github.com/pytorch/pytorch/issues/23782
Truth: mean cosine of different pairs stays near 1 (healthy: below 0.5).
Could a tool know: yes: the targets given to cosine_embedding_loss are not in {1, -1}.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)
centers = torch.randn(8, 20)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 16))

    def forward(self, x):
        return self.net(x)


model = Tower()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CosineEmbeddingLoss(margin=0.1)


def pairs(n):
    a, b = torch.randint(0, 8, (n,)), torch.randint(0, 8, (n,))
    b = torch.where(torch.rand(n) < 0.5, a, b)
    xa, xb = centers[a] + 0.3 * torch.randn(n, 20), centers[b] + 0.3 * torch.randn(n, 20)
    return xa, xb, (a == b).float()


for step in range(200):
    xa, xb, same = pairs(64)
    target = same * 2 - 1 if HEALTHY else same
    loss = criterion(model(xa), model(xb), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    xa, xb, same = pairs(512)
    cos = nn.functional.cosine_similarity(model(xa), model(xb))
print(f"loss {loss.item():.4f} cos same {cos[same == 1].mean():.3f} different {cos[same == 0].mean():.3f}")
