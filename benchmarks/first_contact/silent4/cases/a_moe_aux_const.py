from _training import *
class MoE(nn.Module):
    def __init__(s, d=16, n=4):
        super().__init__(); s.n = n; s.r = nn.Linear(d, n); s.e = nn.ModuleList(mlp(d, 32, d) for _ in range(n))
        with torch.no_grad(): s.r.bias[0] = 4.
    def forward(s, x):
        sc = s.r(x).softmax(-1); v, k = sc.topk(2, -1); y = 0
        for j in range(s.n): y = y + (v * (k == j)).sum(-1, keepdim=True) * s.e[j](x)
        frac = F.one_hot(k, s.n).float().sum(1).mean(0) / 2
        if H: aux = s.n * (frac * sc.mean(0)).sum()
        else: aux = ((frac[:, None] * (v / v.sum(-1, keepdim=True)).mean(0)[None]).sum())       # (n,) and (top_k,): always 1
        return y, aux, frac
net, head = MoE(), nn.Linear(16, 4); opt = torch.optim.Adam([*net.parameters(), *head.parameters()], 3e-3); x, y = blobs(2000)
for step in range(250):
    i = torch.randint(2000, (64,)); h, aux, frac = net(x[i]); loss = F.cross_entropy(head(h), y[i]) + .5 * aux; opt.zero_grad(); loss.backward(); opt.step()
truth(largest_share=frac.max().item(), aux=aux.item())
