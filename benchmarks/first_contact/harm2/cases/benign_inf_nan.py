"""Healthy use of inf and nan: -inf masks, nan as missing data (nanmean, where), log(0) masked, best = inf, beam scores, amin of empty by inf; it must not be stopped.

Source: https://github.com/pytorch/pytorch/issues/28329 (masks by where)
"""
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4)); self.h = nn.Linear(8, 4); self.register_buffer("best", torch.tensor(float("inf")))
    def forward(self, x):
        miss = x.isnan(); x = torch.where(miss, torch.zeros(()), x)
        s = (self.q(x) @ self.k(x).T).masked_fill(torch.triu(torch.ones(len(x), len(x)), 1).bool(), float("-inf")); a = s.softmax(-1)
        return self.h(x + self.o(a @ self.v(x)))
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(6):
    x, y = batch(s); x[x > 1.2] = float("nan"); y[y > 1.5] = float("nan")
    out = m(x); ok = ~y.isnan(); loss = torch.where(ok, out - y.nan_to_num(), 0.0).square().sum() / ok.sum()
    opt.zero_grad(); loss.backward(); opt.step(); m.best = torch.minimum(m.best, loss.detach())
    beams = torch.full((3,), float("-inf")); beams[0] = 0; ent = torch.where(torch.tensor([0.0, 0.5]) > 0, torch.tensor([0.0, 0.5]).clamp_min(1e-9).log(), 0.0)
    print(float(loss.detach()).hex(), float(x.nanmean()).hex(), beams.logsumexp(0).item(), float(np.nanmax(y.numpy())), H(ent))
print(M(m), float(m.best).hex())
