#: what: a pointer network with REINFORCE: visited cities at -inf, log-probabilities gathered, a critic; entropy nan by 0*-inf only printed
#: benign: -inf masks and a nan entropy
#: source: https://github.com/pemami4911/neural-combinatorial-rl-pytorch/issues/5
# PRELUDE
class Ptr(nn.Module):
    def __init__(self, h=16): super().__init__(); self.e = nn.Linear(2, h); self.cell = nn.LSTMCell(h, h); self.w1, self.w2 = nn.Linear(h, h, bias=False), nn.Linear(h, h); self.v = nn.Parameter(torch.randn(h) * 0.1); self.start = nn.Parameter(torch.zeros(h))
    def forward(self, x):
        B, n, _ = x.shape; E = self.e(x); st = (torch.zeros(B, E.size(-1)), torch.zeros(B, E.size(-1))); inp = self.start.expand(B, -1); mask = torch.zeros(B, n, dtype=torch.bool); lps, tour, ents = [], [], []
        for _ in range(n):
            st = self.cell(inp, st); u = torch.tanh(self.w1(E) + self.w2(st[0])[:, None]) @ self.v; lp = (10 * u.tanh()).masked_fill(mask, -float("inf")).log_softmax(-1); a = torch.multinomial(lp.exp(), 1); lps.append(lp.gather(1, a)); ents.append(-(lp.exp() * lp).sum(-1)); tour.append(a); mask = mask.scatter(1, a, True); inp = E.gather(1, a[..., None].expand(-1, -1, E.size(-1))).squeeze(1)
        return torch.cat(lps, 1).sum(1), torch.cat(tour, 1), torch.stack(ents)
m = Ptr(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); base = None
for s in range(12):
    x = torch.rand(16, 6, 2); lp, t, ent = m(x); p = x.gather(1, t[..., None].expand(-1, -1, 2)); L = (p - p.roll(1, 1)).norm(dim=2).sum(1); base = L.mean() if base is None else 0.8 * base + 0.2 * L.mean()
    l = ((L - base).detach() * lp).mean(); opt.zero_grad(); l.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); print(s, L.mean().item(), torch.isnan(ent).sum().item())
show(m, opt)
