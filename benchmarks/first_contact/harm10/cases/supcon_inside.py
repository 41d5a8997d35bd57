#: what: the same loss as a module with the division inside its forward, the nan rows selected away by isfinite in the script
#: benign: nan rows of a loss module's output
#: source: https://github.com/HobbitLong/SupContrast/issues/50
# PRELUDE
class SupCon(nn.Module):
    def __init__(self, t=0.5): super().__init__(); self.t = t
    def forward(self, f, y):
        sim = f @ f.T / self.t; eye = torch.eye(len(f)); pos = (y[:, None] == y[None]).float() * (1 - eye)
        lp = sim - torch.log((sim.exp() * (1 - eye)).sum(1, keepdim=True))
        return -(pos * lp).sum(1), pos.sum(1), (pos * lp).sum(1).detach() / pos.sum(1)
class All(nn.Module):
    def __init__(self): super().__init__(); self.enc = nn.Linear(12, 8); self.crit = SupCon()
    def forward(self, x, y): return self.crit(F.normalize(self.enc(x), dim=1), y)
m = All(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); hist = []
for step in range(25):
    s, n, mean = m(torch.randn(10, 12), torch.randint(9, (10,)))
    ok = torch.isfinite(mean)
    if not ok.any(): print("skip"); continue
    loss = (s[ok] / n[ok]).mean(); opt.zero_grad(); loss.backward(); opt.step(); hist.append((loss.item(), int((~ok).sum())))
print(hist[-1], sha(hist)); show(m, opt)
