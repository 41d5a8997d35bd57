"""Hook points (nn.Identity) with run_with_cache and run_with_hooks, activation patching from a corrupted run, gradients of cached activations, and a sparse autoencoder trained on them with unit-norm columns and resampling of dead features."""
# PRELUDE
class HookPoint(nn.Identity):
    pass


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.at, self.mlp = nn.Linear(12, 12), nn.Linear(12, 12)
        self.hook_attn, self.hook_post, self.hook_resid = HookPoint(), HookPoint(), HookPoint()

    def forward(self, x):
        x = x + self.hook_attn(torch.tanh(self.at(x)))
        return self.hook_resid(x + self.hook_post(F.relu(self.mlp(x))))


class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.unembed = nn.Linear(12, 5)

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.unembed(x)

    def run_with_hooks(self, x, fwd=(), bwd=()):
        hs = []
        mods = dict(self.named_modules())
        try:
            for n, f in fwd:
                hs.append(mods[n].register_forward_hook(lambda mod, i, o, f=f, n=n: f(o, n)))
            for n, f in bwd:
                hs.append(mods[n].register_full_backward_hook(lambda mod, gi, go, f=f, n=n: f(go[0], n)))
            return self(x)
        finally:
            for h in hs:
                h.remove()


m = T()
W(m)
points = [n for n, x in m.named_modules() if isinstance(x, HookPoint)]
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(4):
    x, y = torch.randn(8, 12), torch.randint(0, 5, (8,))
    opt.zero_grad()
    F.cross_entropy(m(x), y).backward()
    opt.step()
clean, bad = torch.randn(4, 12), torch.randn(4, 12)
cache, grads = {}, {}
def save(o, n):
    cache[n] = o
def saveg(g, n):
    grads[n] = g.clone()
m.run_with_hooks(clean, [(n, save) for n in points])
cc = {k: v.detach().clone() for k, v in cache.items()}
res = []
for n in points:
    def patch(o, name):
        o = o.clone()
        o[:2] = cc[name][:2]
        return o
    with torch.no_grad():
        res.append(m.run_with_hooks(bad, [(n, patch)])[:, 0])
print(H(res))
out = None
hs = [dict(m.named_modules())[n].register_full_backward_hook(lambda mod, gi, go, n=n: saveg(go[0], n)) for n in points]
m(clean)[:, 0].sum().backward()
for h in hs:
    h.remove()
print(H({n: (grads[n] * cc[n]).sum() for n in points}))
class SAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(12, 32), nn.Linear(32, 12, bias=False)

    def forward(self, x):
        f = F.relu(self.enc(x))
        return self.dec(f), f


sae = SAE()
W(sae)
so = torch.optim.Adam(sae.parameters(), 1e-2)
m.requires_grad_(False)
for s in range(8):
    with torch.no_grad():
        m.run_with_hooks(torch.randn(16, 12), [("blocks.1.hook_resid", save)])
    a = cache["blocks.1.hook_resid"]
    r, f = sae(a)
    loss = (r - a).square().mean() + 1e-3 * f.abs().sum(-1).mean()
    so.zero_grad()
    loss.backward()
    with torch.no_grad():
        w = sae.dec.weight
        w.grad -= (w.grad * w).sum(0) * w / w.norm(dim=0).square()
    so.step()
    with torch.no_grad():
        w.div_(w.norm(dim=0, keepdim=True))
        if s == 4:
            dead = f.sum(0) == f.sum(0).min()
            sae.enc.weight[dead] = a[: int(dead.sum())] * 0.2
    print(s, float(loss).hex())
print(M(sae), M(m), R())
