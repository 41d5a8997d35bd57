"""An LSTM optimizer unrolled over functional weights with truncated meta-updates; implicit hypergradients by conjugate gradients on Hessian-vector products; learning to reweight examples through a virtual step; Reptile."""
# PRELUDE
from torch.func import functional_call
class LO(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.o = nn.LSTMCell(2, 8), nn.Linear(8, 1)
    def forward(self, g, st):
        x = torch.stack([g.abs().clamp(min=1e-4).log() / 10, g.sign()], -1).detach()
        h, c = self.c(x, st)
        return self.o(h)[:, 0] * 0.1, (h, c)
lo = LO()
W(lo)
mo = torch.optim.Adam(lo.parameters(), 1e-2)
for ep in range(2):
    target = net(ep)
    ps = {k: v.detach().clone().requires_grad_() for k, v in target.named_parameters()}
    st = {k: (torch.zeros(v.numel(), 8), torch.zeros(v.numel(), 8)) for k, v in ps.items()}
    tot = 0
    for s in range(6):
        x, y = batch(s)
        loss = F.mse_loss(functional_call(target, ps, (x,)), y)
        tot = tot + loss
        gs = torch.autograd.grad(loss, list(ps.values()), retain_graph=True)
        new = {}
        for (k, p), g in zip(ps.items(), gs):
            u, st[k] = lo(g.flatten(), st[k])
            new[k] = p + u.view_as(p)
        ps = new
        if s % 3 == 2:
            mo.zero_grad()
            tot.backward()
            mo.step()
            ps = {k: v.detach().requires_grad_() for k, v in ps.items()}
            st = {k: tuple(z.detach() for z in v) for k, v in st.items()}
            print(ep, s, float(tot.detach()).hex())
            tot = 0
m = net(5)
W(m)
lam = torch.zeros(5 + 1, requires_grad=True)
ho = torch.optim.Adam([lam], 0.1)
opt = torch.optim.SGD(m.parameters(), 0.05)
P = list(m.parameters())
def inner(b): return F.mse_loss(m(b[0]), b[1]) + sum(lam[i].exp() * p.square().sum() for i, p in enumerate(P)) * 1e-2
for s in range(3):
    for k in range(3):
        opt.zero_grad()
        inner(batch(k)).backward()
        opt.step()
    v = torch.autograd.grad(F.mse_loss(m(batch(50)[0]), batch(50)[1]), P)
    g = torch.autograd.grad(inner(batch(0)), P, create_graph=True)
    hv = lambda z: [a + 0.1 * b for a, b in zip(torch.autograd.grad(g, P, z, retain_graph=True), z)]
    x = [torch.zeros_like(a) for a in v]
    r = [a.clone() for a in v]
    d = [a.clone() for a in r]
    for _ in range(4):
        hd = hv(d)
        rr = sum((a * a).sum() for a in r)
        al = rr / sum((a * b).sum() for a, b in zip(d, hd))
        x = [a + al * b for a, b in zip(x, d)]
        r = [a - al * b for a, b in zip(r, hd)]
        be = sum((a * a).sum() for a in r) / rr
        d = [a + be * b for a, b in zip(r, d)]
    lam.grad = -torch.autograd.grad(g, lam, x)[0]
    ho.step()
    print(s, H(lam), M(m))
for s in range(3):
    x, y = batch(s)
    eps = torch.zeros(6, requires_grad=True)
    ps = dict(m.named_parameters())
    l = (F.mse_loss(functional_call(m, ps, (x,)), y, reduction="none").mean(1) * eps).sum()
    g = torch.autograd.grad(l, list(ps.values()), create_graph=True)
    fast = {k: p - 0.1 * a for (k, p), a in zip(ps.items(), g)}
    ge = torch.autograd.grad(F.mse_loss(functional_call(m, fast, (batch(60)[0],)), batch(60)[1]), eps)[0]
    w = (-ge).clamp(min=0)
    w = w / (w.sum() + 1e-8)
    opt.zero_grad()
    (F.mse_loss(m(x), y, reduction="none").mean(1) * w).sum().backward()
    opt.step()
old = {k: v.clone() for k, v in m.state_dict().items()}
print(train(m, opt, 3))
m.load_state_dict({k: old[k] + 0.5 * (v - old[k]) for k, v in m.state_dict().items()})
print(M(m), M(lo), R())
