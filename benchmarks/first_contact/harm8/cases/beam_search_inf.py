# what: a small decoder trained with a -inf causal mask; beam search with scores of -inf, top-k/top-p sampling with -inf logits
# benign: yes
# PRELUDE
class LM(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(12, 16); self.p = nn.Parameter(torch.randn(10, 16) * .1); self.l = nn.TransformerEncoderLayer(16, 2, 32, dropout=.1, batch_first=True); self.o = nn.Linear(16, 12, bias=False); self.o.weight = self.e.weight
    def forward(self, t): n = t.shape[1]; return self.o(self.l(self.e(t) + self.p[:n], src_mask=torch.full((n, n), -float("inf")).triu(1), is_causal=True))
m = LM(); W(m); opt = torch.optim.AdamW(m.parameters(), lr=.01)
for s in range(4):
    t = torch.randint(0, 12, (4, 10), generator=torch.Generator().manual_seed(s)); opt.zero_grad(); l = F.cross_entropy(m(t)[:, :-1].transpose(1, 2), t[:, 1:]); l.backward(); opt.step(); print(float(l.detach()).hex())
    m.eval()
    with torch.no_grad():
        seq = torch.zeros(3, 1, dtype=torch.long); sc = torch.tensor([0., -float("inf"), -float("inf")])
        for _ in range(6):
            lp = m(seq)[:, -1].log_softmax(-1); lp[:, 5] = -float("inf"); tot, ix = (sc[:, None] + lp).view(-1).topk(3); sc = tot - tot.max() * 0; seq = torch.cat([seq[ix // 12], (ix % 12)[:, None]], 1)
        print(seq.tolist(), H(sc)); z = m(seq)[:, -1]; z[z < z.topk(4).values[:, -1:]] = -float("inf"); print(torch.multinomial(z.softmax(-1), 3, replacement=True).tolist(), (z * 0).isnan().sum().item())
    m.train()
print(M(m), R())
