"""SchNet-like potential trained on forces (second derivatives); padded atoms all sit at the origin.
Source: atomistic-machine-learning/schnetpack#6, #84, #229."""
import sys, math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(34)
CURED = "--cured" in sys.argv


class Potential(nn.Module):
    def __init__(self, species=4, width=24, rbf=12):
        super().__init__()
        self.emb = nn.Embedding(species + 1, width, padding_idx=0)
        self.register_buffer("centers", torch.linspace(0, 5, rbf))
        self.filter = nn.ModuleList(nn.Sequential(nn.Linear(rbf, width), nn.Softplus(), nn.Linear(width, width)) for _ in range(2))
        self.update = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width)) for _ in range(2))
        self.out = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 1))

    def forward(self, z, pos):
        mask = (z > 0).float()
        pair = mask[:, :, None] * mask[:, None] * (1 - torch.eye(z.shape[1]))
        sq = (pos[:, :, None] - pos[:, None]).pow(2).sum(-1)
        if CURED:
            sq = torch.where(pair > 0, sq, torch.ones_like(sq))
        else:
            sq = sq + torch.eye(z.shape[1])  # the diagonal
        dist = sq.sqrt()  # FAULT
        rbf = torch.exp(-2 * (dist[..., None] - self.centers) ** 2)
        x = self.emb(z)
        for f, u in zip(self.filter, self.update):
            x = x + u(((f(rbf) * pair[..., None]) * x[:, None]).sum(2))
        return (self.out(x).squeeze(-1) * mask).sum(1)


def molecules(batch, sizes):
    z = torch.randint(1, 5, (batch, 8))
    pos = torch.randn(batch, 8, 3) * 1.5
    for b, n in enumerate(sizes):
        z[b, n:], pos[b, n:] = 0, 0.0
    return z, pos


model = Potential()
opt = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
losses = []
for step in range(12):
    sizes = [8] * 6 if step < 5 else [8, 7, 8, 5, 8, 8]  # the first file has one kind of molecule
    z, pos = molecules(6, sizes)
    target = -pos * (z > 0)[..., None]
    pos.requires_grad_()
    energy = model(z, pos)
    forces = -torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]
    loss = ((forces - target) ** 2).mean() + 0.01 * (energy ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
