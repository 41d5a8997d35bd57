"""BYOL by a hidden-layer hook with a lazily made projector (lucidrains' singleton decorator), DINO with multi-crop, centering buffer, momentum schedule and weight-normalised last layer with cancelled gradients, VICReg's covariance loss."""
# PRELUDE
import copy, functools
bb = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
def singleton(key):
    def inner(fn):
        @functools.wraps(fn)
        def wrap(self, *a, **k):
            v = getattr(self, key)
            if v is None:
                v = fn(self, *a, **k)
                setattr(self, key, v)
            return v
        return wrap
    return inner
class Wrap(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.net, self.projector, self.hidden, self.reg = n, None, {}, False
    @singleton("projector")
    def get_proj(self, h):
        return nn.Sequential(nn.Linear(h.shape[1], 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)).to(h)
    def _hook(self, _, i, o):
        self.hidden[i[0].device] = o.flatten(1)
    def forward(self, x):
        if not self.reg:
            self.net[-2].register_forward_hook(self._hook)
            self.reg = True
        self.hidden.clear()
        self.net(x)
        h = self.hidden.pop(x.device)
        return self.get_proj(h)(h)
class BYOL(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.on, self.pred, self.tg = Wrap(n), nn.Linear(8, 8), None
        self.forward(torch.randn(2, 3, 9, 9))
    @singleton("tg")
    def target(self):
        t = copy.deepcopy(self.on)
        t.requires_grad_(False)
        return t
    def forward(self, x):
        a, b = x + 0.1 * torch.randn_like(x), x.flip(-1)
        p = self.pred(self.on(torch.cat([a, b])))
        with torch.no_grad():
            t = self.target()(torch.cat([b, a]))
        return (2 - 2 * F.cosine_similarity(p, t)).mean()
l = BYOL(bb)
W(l)
opt = torch.optim.Adam([p for p in l.parameters() if p.requires_grad], 1e-2)
for s in range(4):
    loss = l(torch.rand(4, 3, 9, 9))
    opt.zero_grad()
    loss.backward()
    opt.step()
    for a, b in zip(l.on.parameters(), l.tg.parameters()):
        b.data = 0.99 * b.data + 0.01 * a.data
    print(s, float(loss.detach()).hex())
print(M(l))
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 8))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(8, 12, bias=False))
        self.last.parametrizations.weight.original0.data.fill_(1)
        self.last.parametrizations.weight.original0.requires_grad = False
    def forward(self, x): return self.last(F.normalize(self.mlp(x), dim=-1))
st = nn.Sequential(bb, Head())
te = copy.deepcopy(st).requires_grad_(False)
W(st)
center = torch.zeros(1, 12)
opt = torch.optim.SGD([p for p in st.parameters() if p.requires_grad], 0.05, momentum=0.9)
for s in range(5):
    crops = [torch.rand(4, 3, k, k) for k in (9, 9, 5, 5)]
    with torch.no_grad():
        t = te(torch.cat(crops[:2]))
    so = torch.cat([st(torch.cat(crops[:2])), st(torch.cat(crops[2:]))]).chunk(4)
    tp = ((t - center) / 0.04).softmax(-1).chunk(2)
    loss = sum(-(tp[i] * F.log_softmax(so[j] / 0.1, -1)).sum(-1).mean() for i in range(2) for j in range(4) if i != j) / 6
    z = so[0] - so[0].mean(0)
    cov = z.t() @ z / 3
    loss = loss + 0.01 * F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() + 0.01 * (cov - cov.diag().diag()).square().sum() / 12
    opt.zero_grad()
    loss.backward()
    if s < 2:
        for n, p in st.named_parameters():
            if "last" in n:
                p.grad = None
    opt.step()
    with torch.no_grad():
        for a, b in zip(st.parameters(), te.parameters()):
            b.mul_(0.9).add_(a.detach(), alpha=0.1)
    center = center * 0.9 + t.mean(0, keepdim=True) * 0.1
    print(s, float(loss.detach()).hex(), H(center))
print(M(st), M(te), R())
