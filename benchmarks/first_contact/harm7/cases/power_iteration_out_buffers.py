"""Spectral normalization by hand with buffers written through normalize(out=), .data and copy_, several power iterations a forward, must keep weights, buffers and versions, and number of calls."""
# PRELUDE
class SN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(o, i) * 0.3), nn.Parameter(torch.zeros(o))
        self.register_buffer("u", F.normalize(torch.randn(o), dim=0))
        self.register_buffer("v", F.normalize(torch.randn(i), dim=0))
        self.register_buffer("n", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                for _ in range(2):
                    torch.mv(self.weight.t(), self.u, out=self.v)
                    F.normalize(self.v, dim=0, eps=1e-12, out=self.v)
                    F.normalize(torch.mv(self.weight, self.v), dim=0, eps=1e-12, out=self.u)
                    self.n += 1
            u, v = self.u.clone(), self.v.clone()
        else:
            u, v = self.u, self.v
        return F.linear(x, self.weight / torch.dot(u, torch.mv(self.weight, v)), self.bias)


torch.manual_seed(2)
d = nn.Sequential(SN(4, 16), nn.LeakyReLU(0.2, inplace=True), SN(16, 16), nn.LeakyReLU(0.2, inplace=True), nn.utils.parametrizations.spectral_norm(nn.Linear(16, 1)))
g = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
W(d)
W(g)
od, og = torch.optim.Adam(d.parameters(), 2e-3, (0.0, 0.9)), torch.optim.Adam(g.parameters(), 2e-3, (0.0, 0.9))
for s in range(5):
    gen = torch.Generator().manual_seed(s)
    z, x = torch.randn(8, 3, generator=gen), torch.randn(8, 4, generator=gen)
    od.zero_grad()
    ld = F.relu(1 - d(x)).mean() + F.relu(1 + d(g(z).detach())).mean()
    ld.backward()
    od.step()
    og.zero_grad()
    lg = -d(g(z)).mean()
    lg.backward()
    og.step()
    with torch.no_grad():
        for l in (d[0], d[2]):
            l.weight.data.clamp_(-1, 1)
            l.u.data.copy_(F.normalize(l.u + 1e-3, dim=0))
    d.eval()
    with torch.no_grad():
        e = d(x)
    d.train()
    print(s, float(ld.detach()).hex(), float(lg.detach()).hex(), M(d), M(g), H(e), [(k, b._version) for k, b in d.named_buffers()], [p._version for p in d.parameters()])
    print(s, H(torch.linalg.svdvals(d[0].weight.detach())), H(torch.linalg.matrix_norm(d[2].weight.detach(), 2)), d[0].n.item(), R())
