#: what: noisy top-k mixture of experts: full_like(-inf).scatter, softmax, index_add over experts of which some get no token (means of empty slices are nan, logged)
#: benign: -inf gates, nan statistics of idle experts
#: source: https://prof.lexailabs.com/practice/noisy-top-k-gating
# PRELUDE
class MoE(nn.Module):
    def __init__(self, d=12, E=6, k=2): super().__init__(); self.g, self.n = nn.Linear(d, E), nn.Linear(d, E); self.ex = nn.ModuleList(nn.Sequential(nn.Linear(d, 24), nn.GELU(), nn.Linear(24, d)) for _ in range(E)); self.k = k; self.stats = None
    def forward(self, x):
        lg = self.g(x); ns = lg + torch.randn_like(lg) * F.softplus(self.n(x)); top, ix = ns.topk(self.k, -1); gates = torch.full_like(ns, float("-inf")).scatter(-1, ix, top).softmax(-1); out = torch.zeros_like(x); st = []
        for i, e in enumerate(self.ex):
            sel = (ix == i).any(-1); st.append(gates[sel, i].mean().detach())
            if sel.any(): out = out.index_add(0, sel.nonzero().squeeze(1), e(x[sel]) * gates[sel, i:i + 1])
        self.stats = torch.stack(st); imp = gates.sum(0); return out, (imp.std() / imp.mean()) ** 2
m = MoE(); watch(m); opt = torch.optim.AdamW(m.parameters(), 3e-3, foreach=False); n = 0
for s in range(20): x = torch.randn(3, 12); y, aux = m(x); l = F.mse_loss(y, x) + 0.01 * aux; opt.zero_grad(); l.backward(); opt.step(); n += int(torch.isnan(m.stats).sum()); print(l.item())
print(n, sha(m.stats)); show(m, opt)
