"""Several losses of one forward: PCGrad with retain_graph backwards per task, GradNorm's second-order update of task weights, uncertainty weighting, MGDA by autograd.grad on the shared features."""
# PRELUDE
class MT(nn.Module):
    def __init__(self):
        super().__init__()
        self.sh, self.heads = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU()), nn.ModuleList(nn.Linear(16, 1) for _ in range(3))
        self.logvar = nn.Parameter(torch.zeros(3))
    def forward(self, x):
        self.z = self.sh(x)
        return [h(self.z)[:, 0] for h in self.heads]
m = MT()
W(m)
tw = nn.Parameter(torch.ones(3))
opt, wo = torch.optim.Adam(m.parameters(), 1e-2), torch.optim.Adam([tw], 1e-2)
first = None
for s in range(6):
    x, y = batch(s)
    ls = torch.stack([F.mse_loss(o, y[:, i]) for i, o in enumerate(m(x))])
    if s % 3 == 0:
        gs = []
        for l in ls:
            opt.zero_grad()
            l.backward(retain_graph=True)
            gs.append(torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in m.parameters()]))
        out = []
        for g in gs:
            g = g.clone()
            order = gs[:]
            random.shuffle(order)
            for o in order:
                d = g @ o
                if d < 0:
                    g -= d * o / o.norm() ** 2
            out.append(g)
        g, k = torch.stack(out).mean(0), 0
        for p in m.parameters():
            p.grad = g[k:k + p.numel()].view_as(p).clone()
            k += p.numel()
        opt.step()
    elif s % 3 == 1:
        first = ls.detach() if first is None else first
        opt.zero_grad()
        (tw * ls).sum().backward(retain_graph=True)
        tw.grad = None
        W_ = m.sh[2].weight
        norms = torch.stack([torch.autograd.grad(tw[i] * ls[i], W_, create_graph=True, retain_graph=True)[0].norm() for i in range(3)])
        r = (ls.detach() / first)
        gl = (norms - (norms.mean() * (r / r.mean()) ** 0.5).detach()).abs().sum()
        tw.grad = torch.autograd.grad(gl, tw)[0]
        opt.step()
        wo.step()
    else:
        gz = [torch.autograd.grad(l, m.z, retain_graph=True)[0].flatten() for l in ls]
        al = torch.stack(gz).norm(dim=1).softmax(0)
        opt.zero_grad()
        ((al * ls * (-m.logvar).exp()).sum() + m.logvar.sum()).backward()
        opt.step()
    print(s, H(ls), H(tw))
print(M(m), R())
