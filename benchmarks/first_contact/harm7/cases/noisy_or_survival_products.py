"""prod and cumprod with zeros in multiple-instance pooling, discrete survival and volume rendering must give the same values and gradients."""
# PRELUDE
torch.manual_seed(5)
m = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
for s in range(6):
    g = torch.Generator().manual_seed(s)
    x = torch.randn(4, 7, 6, generator=g)
    p = torch.sigmoid(m(x) * 30).clamp(0, 1)
    p = torch.where(p > 0.999, torch.ones_like(p), p)  # saturates: 1 - p is zero
    bag = 1 - torch.prod(1 - p, dim=1)
    surv = torch.cumprod(1 - p[..., 0], dim=1)
    dens = F.softplus(m(x)[..., 1])
    alpha = 1 - torch.exp(-dens)
    trans = torch.cumprod(torch.cat([torch.ones(4, 1), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    render = (alpha * trans * x[..., 0]).sum(1)
    whole = (1 - p[:, :2, 1]).prod()
    masked = torch.masked.prod(p[..., 2], 1, mask=x[..., 1] > 0)
    c = torch.polar(1 - p[..., 3], p[..., 4]).cumprod(1)
    pc = torch.complex(p[..., 3], p[..., 4]).prod(1)
    parts = [bag.square().mean(), surv.mean(), render.square().mean(), whole, masked.mean(), c.abs().mean(), pc.abs().mean(), torch.linalg.vector_norm(torch.prod(p.flatten(1), 1, keepdim=True))]
    for i, q in enumerate(parts):
        gr = torch.autograd.grad(q, list(m.parameters()), retain_graph=True, allow_unused=True)
        print(s, i, float(q.detach()).hex(), H([t if t is not None else 0 for t in gr]), q.grad_fn.name())
    opt.zero_grad()
    sum(parts).backward()
    opt.step()
    print(s, M(m), (p == 1).sum().item(), H(torch.cumprod(p.detach(), 1)), H(p.detach().prod(1)))
