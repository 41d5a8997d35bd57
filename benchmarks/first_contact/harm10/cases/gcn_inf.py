#: what: GCN with isolated nodes: degree**-0.5 is inf, set to 0 in place, in every forward
#: benign: inf replaced in place inside a module
#: source: https://github.com/pyg-team/pytorch_geometric/issues/61
# PRELUDE
class Conv(nn.Module):
    def __init__(self, i, o): super().__init__(); self.lin = nn.Linear(i, o, bias=False); self.bias = nn.Parameter(torch.zeros(o))
    def forward(self, x, ei, ew):
        deg = torch.zeros(len(x)).scatter_add_(0, ei[1], ew); dis = deg.pow(-0.5); dis[dis == float("inf")] = 0
        h = self.lin(x); msg = h[ei[0]] * (dis[ei[0]] * ew * dis[ei[1]])[:, None]
        return torch.zeros_like(h).index_add_(0, ei[1], msg) + self.bias
class GCN(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = Conv(6, 16), Conv(16, 3)
    def forward(self, x, ei, ew): return self.b(F.dropout(self.a(x, ei, ew).relu(), 0.5, self.training), ei, ew)
m = GCN(); watch(m); opt = torch.optim.Adam([{"params": m.a.parameters(), "weight_decay": 5e-4}, {"params": m.b.parameters(), "weight_decay": 0}], 1e-2)
x = torch.randn(30, 6); ei = torch.randint(22, (2, 60)); ew = torch.rand(60); y = torch.randint(3, (30,)); mask = torch.rand(30) < 0.6
best = 0
for ep in range(30):
    m.train(); opt.zero_grad(); out = m(x, ei, ew); F.cross_entropy(out[mask], y[mask]).backward(); opt.step()
    m.eval()
    with torch.no_grad(): acc = (m(x, ei, ew).argmax(1)[~mask] == y[~mask]).float().mean().item()
    best = max(best, acc)
print("best", best); show(m, opt)
