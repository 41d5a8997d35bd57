from _training import *
class MoE(nn.Module):
    def __init__(s, d=16, n=4): super().__init__(); s.n = n; s.r = nn.Linear(d, n, bias=False); s.e = nn.ModuleList(mlp(d, 32, d) for _ in range(n))
    def forward(s, x):
        p = s.r(x).softmax(-1); v, k = p.topk(2, -1); v = v / v.sum(-1, keepdim=True); y = torch.zeros_like(x)
        for j in range(s.n):
            w = (v * (k == j)).sum(-1); i = w.nonzero().squeeze(-1)
            if len(i): y = y.index_add(0, i, w[i, None] * s.e[j](x[i]))
        f = F.one_hot(k, s.n).float().sum(1).mean(0) / 2; return x + y, s.n * (f * p.mean(0)).sum()
m1, m2, h = MoE(), MoE(), nn.Linear(16, 4); opt = torch.optim.AdamW([*m1.parameters(), *m2.parameters(), *h.parameters()], 2e-3); x, y = blobs(3000, s=1.5)
for step in range(900):
    i = torch.randint(3000, (64,)); a, l1 = m1(x[i]); b, l2 = m2(a); ce = F.cross_entropy(h(b), y[i]); opt.zero_grad(); (ce + .01 * (l1 + l2)).backward(); opt.step()
truth(loss=ce.item())
