#: what: a linear-chain CRF whose START and STOP transitions are -inf parameters (fixed by a gradient hook), logsumexp over -inf
#: benign: -inf weights from the initialization on
#: source: https://github.com/pytorch/tutorials/pull/121
# PRELUDE
class CRF(nn.Module):
    def __init__(self, T=5):
        super().__init__(); self.T = T; self.emb = nn.Embedding(12, 8); self.lstm = nn.LSTM(8, 8, bidirectional=True, batch_first=True); self.out = nn.Linear(16, T)
        self.trans = nn.Parameter(torch.randn(T, T)); self.trans.data[T - 2, :] = float("-inf"); self.trans.data[:, T - 1] = float("-inf")
        ok = torch.isfinite(self.trans.data); self.trans.register_hook(lambda g: torch.where(ok, g, torch.zeros_like(g)))
    def forward(self, x, y):
        e = self.out(self.lstm(self.emb(x)[None])[0])[0]; S, E = self.T - 2, self.T - 1
        a = torch.full((self.T,), -1e4); a[S] = 0.0
        for t in range(len(x)):
            tr = self.trans.masked_fill(~torch.isfinite(self.trans.detach()), -1e4)
            a = torch.logsumexp(a[None, :] + tr, 1) + e[t]
        Z = torch.logsumexp(a[:S] + self.trans[E, :S], 0)
        seq = torch.cat([torch.tensor([S]), y]); gold = sum(self.trans[seq[t + 1], seq[t]] + e[t, y[t]] for t in range(len(x))) + self.trans[E, y[-1]]
        return Z - gold
m = CRF(); watch(m); opt = torch.optim.SGD(m.parameters(), 0.05, weight_decay=0)
for step in range(15):
    x = torch.randint(12, (6,)); y = x % 3; loss = m(x, y); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item())
print(sha(m.trans), torch.isinf(m.trans).sum().item()); show(m, opt)
