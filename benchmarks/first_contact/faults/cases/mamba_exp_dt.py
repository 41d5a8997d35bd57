"""A small selective state-space layer (Mamba-like) whose A is exp(+a) by a wrong sign: the scan grows until it overflows.
Source: state-spaces/mamba#72, johnma2006/mamba-minimal#29 (why the minus sign)."""
import sys
import torch
import torch.nn.functional as F
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class SSM(nn.Module):
    def __init__(self, w, n=4):
        super().__init__()
        self.a_log = nn.Parameter(torch.log(torch.arange(1.0, n + 1).repeat(w, 1)))
        self.dt, self.bc = nn.Linear(w, w), nn.Linear(w, 2 * n)

    def forward(self, x):
        sign = -1.0 if CURED else 1.0
        a = sign * self.a_log.exp()
        dt = F.softplus(self.dt(x))
        b, c = self.bc(x).chunk(2, -1)
        h = x.new_zeros(x.shape[0], x.shape[2], a.shape[1])
        out = []
        for t in range(x.shape[1]):
            decay = torch.exp(dt[:, t, :, None] * a)
            h = decay * h + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]  # FAULT
            out.append((h * c[:, t, None]).sum(-1))
        return torch.stack(out, 1)


net = nn.Sequential(nn.Linear(2, 6), SSM(6), nn.Linear(6, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step, length in enumerate([6, 12, 80, 6]):
    x = torch.randn(2, length, 2)
    loss = (net(x) - x.sum(-1, keepdim=True)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
