"""Optimal transport in the log domain with masses of zero: log(0) = -inf potentials, logsumexp over them; the plan weighs a loss."""
# PRELUDE
seed(21)


@torch.no_grad()
def sinkhorn(a, b, C, eps=0.1, n=30):
    la, lb, f, g = a.log(), b.log(), torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(n):
        f = -eps * torch.logsumexp((g[None] - C) / eps + lb[None], 1)
        g = -eps * torch.logsumexp((f[:, None] - C) / eps + la[:, None], 0)
    lp = (f[:, None] + g[None] - C) / eps + la[:, None] + lb[None]
    return lp.exp(), lp


net = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 2))
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(20):
    x, y = torch.randn(24, 2), torch.randn(20, 2) * 0.3 + 1
    a, b = torch.rand(24), torch.rand(20)
    a[:4] = 0
    b[::5] = 0
    a, b = a / a.sum(), b / b.sum()
    C = torch.cdist(net(x), y, compute_mode="donot_use_mm_for_euclid_dist").pow(2)
    P, lp = sinkhorn(a, b, C.detach())
    loss = (P * C).sum()
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, dig(loss, P, lp), int(lp.isinf().sum()))
end(net, opt)
