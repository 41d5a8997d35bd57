"""ZCA whitening by eigh of a covariance with equal eigenvalues: 1 / (l_i - l_j) in backward.
Source: pytorch/pytorch#50942, Wang et al. 2019 (Backpropagation-Friendly Eigendecomposition)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class ZCA(nn.Module):
    def forward(self, x):
        x = x - x.mean(0)
        cov = x.T @ x / len(x)
        if CURED:
            cov = cov + torch.diag(torch.linspace(0.01, 0.05, cov.shape[0]))
        val, vec = torch.linalg.eigh(cov)  # FAULT
        return x @ vec @ torch.diag((val + 1e-3).rsqrt()) @ vec.T


net = nn.Sequential(nn.Linear(4, 4), ZCA(), nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(3):
    x = torch.randn(8, 4)
    if step == 2:
        x = torch.cat([torch.eye(4), -torch.eye(4)])
        net[0].weight.data = torch.eye(4)
        net[0].bias.data.zero_()
    loss = nn.functional.cross_entropy(net(x), torch.randint(2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
