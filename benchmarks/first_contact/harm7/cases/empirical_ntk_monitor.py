"""Empirical NTK by vmap(jacrev), jvp-vjp and per-sample gradients of a model that is trained, its spectrum and cosine of gradients, must keep bits; the module's counters too."""
# PRELUDE
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap, stack_module_state


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.f = nn.Conv1d(1, 4, 3), nn.Linear(24, 3)
        self.register_buffer("scale", torch.ones(()))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.f(torch.tanh(self.c(x) * self.scale).flatten(1))


torch.manual_seed(1)
m = Net()
W(m)
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)


def single(p, x):
    return functional_call(m, p, (x.unsqueeze(0),)).squeeze(0)


def ntk(p, a, b):
    ja, jb = (vmap(jacrev(single), (None, 0))(p, t) for t in (a, b))
    return sum(torch.einsum("Naf,Mbf->NMab", i.flatten(2), j.flatten(2)) for i, j in zip(ja.values(), jb.values()))


def ntk_vps(p, a, b):
    def entry(x1, x2):
        _, back = vjp(lambda q: single(q, x1), p)
        out = single(p, x1)

        def col(v):
            return jvp(lambda q: single(q, x2), (p,), (back(v)[0],))[1]

        return vmap(col)(torch.eye(out.shape[0]))

    return vmap(lambda x1: vmap(lambda x2: entry(x1, x2))(b))(a)


for s in range(4):
    g = torch.Generator().manual_seed(s)
    x, y = torch.randn(5, 1, 8, generator=g), torch.randint(0, 3, (5,), generator=g)
    loss = F.cross_entropy(m(x), y)
    opt.zero_grad()
    loss.backward()
    p = {k: v.detach() for k, v in m.named_parameters()}
    k = ntk(p, x, x)
    print(s, "ntk", H(k), H(torch.linalg.eigvalsh(k.mean((2, 3)))), H(ntk_vps(p, x[:2], x[:2])), m.calls)
    per = vmap(grad(lambda q, a, b: F.cross_entropy(single(q, a)[None], b[None])), (None, 0, 0))(p, x, y)
    flat = torch.cat([v.flatten(1) for v in per.values()], 1)
    cos = F.cosine_similarity(flat[:, None], flat[None], dim=-1)
    print(s, "per", H(per), H(cos), H(torch.linalg.svdvals(flat)), [v.stride() for v in per.values()], m.calls)
    jf = jacfwd(lambda t: m(t))(x)
    fisher = vmap(lambda v: v.outer(v))(flat[:, :6]).mean(0)
    print(s, "jac", H(jf), H(fisher), H(vmap(torch.linalg.det)(fisher.expand(2, 6, 6) + torch.eye(6))), H(vmap(lambda t: t.prod())(flat[:, :3])), H(vmap(torch.Tensor.sort, randomness="same")(flat)[0]))
    opt.step()
    print(s, float(loss.detach()).hex(), M(m), m.calls, R())
