"""Grad-CAM, guided backpropagation (full backward hooks that change gradients of ReLU) and integrated gradients on a model that is trained in between."""
# PRELUDE
m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
kept = {}


def cam(x, c):
    hs = [m[2].register_forward_hook(lambda mod, a, o: kept.update(a=o)), m[2].register_full_backward_hook(lambda mod, gi, go: kept.update(g=go[0]))]
    m.zero_grad()
    m(x)[:, c].sum().backward()
    for h in hs:
        h.remove()
    w = kept["g"].mean((2, 3), keepdim=True)
    return F.relu((w * kept["a"]).sum(1)).detach()


def guided(x, c):
    hs = [k.register_full_backward_hook(lambda mod, gi, go: (gi[0].clamp(min=0),)) for k in m if isinstance(k, nn.ReLU)]
    x = x.clone().requires_grad_()
    m(x)[:, c].sum().backward()
    for h in hs:
        h.remove()
    return x.grad


def integrated(x, c, n=5):
    total = 0
    for a in torch.linspace(0, 1, n):
        z = (a * x).requires_grad_()
        total = total + torch.autograd.grad(m(z)[:, c].sum(), z)[0]
    return x * total / n


for s in range(4):
    x = torch.randn(2, 3, 10, 10, generator=torch.Generator().manual_seed(s))
    opt.zero_grad()
    F.cross_entropy(m(x), torch.tensor([s % 5, 1])).backward()
    opt.step()
    print(s, H(cam(x, 1)), H(guided(x, 2)), H(integrated(x, 0)), [len(k._forward_hooks) >= 0 for k in m][:1])
m.zero_grad()
print(M(m), R())
