from _training import *
class Coupling(nn.Module):
    def __init__(s, k): super().__init__(); s.k = k; s.n = mlp(2, 48, 4)
    def forward(s, x):
        a, b = (x[:, :2], x[:, 2:]) if s.k else (x[:, 2:], x[:, :2]); ls, t = s.n(a).chunk(2, -1)
        ls = ls.tanh() if H else ls * .5
        b = b * ls.exp() + t; return (torch.cat([a, b], -1) if s.k else torch.cat([b, a], -1)), ls.sum(-1)
net = nn.ModuleList(Coupling(k % 2) for k in range(6)); opt = torch.optim.AdamW(net.parameters(), 1e-3); L = Lost()
for step in range(400):
    x = torch.randn(128, 4); x = torch.cat([x[:, :2], (x[:, :2] ** 2).clamp(max=6) * .5 + .2 * x[:, 2:]], -1); ld = 0; z = x
    for c in net: z, d = c(z); ld = ld + d
    loss = (.5 * (z ** 2).sum(-1) - ld).mean() + 12
    if L.add(loss): break
    opt.zero_grad(); loss.backward(); opt.step()
    if not H:
        for g in opt.param_groups: g["lr"] = min(1., 1e-3 * 1.02 ** step)
L.end()
