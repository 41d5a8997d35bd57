#: what: ActNorm whose scale and bias are nan until the first batch sets them (nan is the 'not initialized' mark), one layer stays uninitialized for 4 steps
#: benign: nan parameters before their first use
#: source: https://github.com/rosinality/glow-pytorch/issues/6
# PRELUDE
class ActNorm(nn.Module):
    def __init__(self, n): super().__init__(); self.loc = nn.Parameter(torch.full((n,), float("nan"))); self.logs = nn.Parameter(torch.full((n,), float("nan")))
    def forward(self, x):
        if torch.isnan(self.loc).any():
            with torch.no_grad(): self.loc.copy_(-x.mean(0)); self.logs.copy_(-(x.std(0) + 1e-6).log())
        return (x + self.loc) * self.logs.exp(), self.logs.sum()
class Flow(nn.Module):
    def __init__(self): super().__init__(); self.n = nn.ModuleList(ActNorm(4) for _ in range(2)); self.f = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4))
    def forward(self, x, k):
        ld = 0
        for n in self.n[:k]: x, l = n(x); a, b = x.chunk(2, 1); s, t = self.f(a).chunk(2, 1); s = s.tanh(); x = torch.cat([b * s.exp() + t, a], 1); ld = ld + l + s.sum(1)
        return 0.5 * (x ** 2).sum(1) - ld
m = Flow(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-3)
for s in range(14): x = torch.randn(16, 4) * 3 + 1; l = m(x, 1 if s < 4 else 2).mean(); opt.zero_grad(); l.backward(); opt.step(); print(l.item(), [torch.isnan(n.loc).any().item() for n in m.n])
show(m, opt)
