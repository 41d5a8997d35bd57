#: what: GradNorm: per-task gradient norms by autograd.grad with create_graph, learned task weights renormalized after each step, retained graph
#: source: https://www.codegenes.net/blog/gradnorm-pytorch
# PRELUDE
class MT(nn.Module):
    def __init__(self):
        super().__init__(); self.trunk = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(32, k) for k in (1, 3, 5)); self.w = nn.Parameter(torch.ones(3))
    def forward(self, x):
        z = self.trunk(x); return [h(z) for h in self.heads]
m = MT(); watch(m)
o1 = torch.optim.Adam([p for n, p in m.named_parameters() if n != "w"], 1e-2); o2 = torch.optim.Adam([m.w], 2.5e-2)
first = None
for step in range(25):
    x = torch.randn(32, 10); ys = [x.sum(1, keepdim=True), x[:, :3] * 10, x[:, :5] * 0.1]
    L = torch.stack([F.mse_loss(a, b) for a, b in zip(m(x), ys)])
    if first is None: first = L.detach()
    o1.zero_grad(); o2.zero_grad()
    (m.w * L).sum().backward(retain_graph=True)
    W = m.trunk[2].weight
    G = torch.stack([torch.norm(m.w[i] * torch.autograd.grad(L[i], W, retain_graph=True, create_graph=True)[0]) for i in range(3)])
    ratio = L.detach() / first; inv = ratio / ratio.mean()
    m.w.grad = torch.autograd.grad((G - (G.mean().detach() * inv ** 1.5)).abs().sum(), m.w)[0]
    o1.step(); o2.step()
    with torch.no_grad(): m.w.mul_(3 / m.w.sum())
    print(step, sha(L, G, m.w))
show(m, o1); show(m, o2)
