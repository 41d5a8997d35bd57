#: what: SuperGlue-like matching: log-space Sinkhorn with a dustbin, -inf for padded key points, nll at ground truth, unmatched rows empty (mean of nothing, logged)
#: benign: -inf scores and nan of an empty mean
#: source: https://github.com/magicleap/SuperGluePretrainedNetwork/issues/6
# PRELUDE
class Glue(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(4, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 16)); self.bin = nn.Parameter(torch.tensor(1.0))
    def forward(self, a, b, padb):
        M, N = len(a), len(b); s = (self.f(a) @ self.f(b).T / 4).masked_fill(padb[None], float("-inf")); C = torch.cat([torch.cat([s, self.bin.expand(M, 1)], 1), self.bin.expand(1, N + 1)], 0); C = torch.cat([C[:, :N].masked_fill(padb[None], -1e9), C[:, N:]], 1)
        nrm = -torch.tensor(float(M + N)).log(); mu = torch.cat([nrm.expand(M), torch.tensor([float(N)]).log() + nrm]); nu = torch.cat([nrm.expand(N), torch.tensor([float(M)]).log() + nrm]); u, v = torch.zeros_like(mu), torch.zeros_like(nu)
        for _ in range(8): u = mu - torch.logsumexp(C + v[None], 1); v = nu - torch.logsumexp(C + u[:, None], 0)
        return C + u[:, None] + v[None] - nrm, s
m = Glue(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-3); nan = 0
for i in range(15):
    a = torch.randn(6, 4); perm = torch.randperm(6); b = torch.cat([a[perm] + 0.05 * torch.randn(6, 4), torch.randn(2, 4)]); padb = torch.tensor([False] * 6 + [i % 2 == 0] * 2); Z, s = m(a, b, padb); inv = perm.argsort(); un = torch.arange(6)[torch.zeros(6, dtype=torch.bool)]
    l = -Z[torch.arange(6), inv].mean(); nan += int(torch.isnan(Z[un, -1].mean())); opt.zero_grad(); l.backward(); opt.step(); print(i, l.item())
print(nan); show(m, opt)
