"""Deep kernel learning with a Cholesky factorization that doesn't raise; repeated inputs make the kernel matrix singular.
Source: meta-pytorch/botorch#237 ("singular U"), cornellius-gp/gpytorch#1288, #1747."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(35)
JITTER = 1e-3 if "--cured" in sys.argv else 0.0


class DeepKernelGP(nn.Module):
    def __init__(self, dim=3):
        super().__init__()
        self.feat = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 6))
        self.log_ls, self.log_var = nn.Parameter(torch.tensor(-1.0)), nn.Parameter(torch.zeros(()))

    def nll(self, x, y):
        f = self.feat(x) / self.log_ls.exp()
        k = self.log_var.exp() * torch.exp(-0.5 * (f[:, None] - f[None]).pow(2).sum(-1)) + JITTER * torch.eye(len(x), dtype=x.dtype)
        chol, info = torch.linalg.cholesky_ex(k)
        alpha = torch.cholesky_solve(y[:, None], chol)
        return 0.5 * y @ alpha[:, 0] / len(y) + chol.diagonal().log().sum() / len(y)  # FAULT


gp = DeepKernelGP().double()
opt = torch.optim.Adam(gp.parameters(), lr=1e-3)
losses = []
for step in range(20):
    x = torch.rand(12, 3, dtype=torch.float64) * 6 - 3
    if step == 11:
        x[6] = x[2]  # the experiment was repeated
        x[7] = x[2]
    y = torch.sin(x).sum(1) + 0.05 * torch.randn(12, dtype=torch.float64)
    loss = gp.nll(x, y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gp.parameters(), 10.0)
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in gp.parameters()))
