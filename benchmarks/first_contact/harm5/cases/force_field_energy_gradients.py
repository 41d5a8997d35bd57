"""A machine-learned force field: energies from continuous-filter convolutions, forces as -dE/dx by autograd.grad inside forward with create_graph, stress by a strain parameter, loss on forces (second derivatives), velocity-Verlet with the eval model under enable_grad."""
# PRELUDE
class SchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.f = nn.Embedding(4, 8), nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 8))
        self.out = nn.Sequential(nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 1))
        self.register_buffer("mu", torch.linspace(0, 3, 6))
    def forward(self, z, x):
        with torch.enable_grad():
            if not x.requires_grad:
                x.requires_grad_()
            strain = torch.zeros(3, 3, requires_grad=True)
            r = x + x @ (strain + strain.t()) / 2
            i, j = torch.triu_indices(len(x), len(x), 1)
            d = (r[i] - r[j]).norm(dim=1)
            g = self.f(torch.exp(-(d[:, None] - self.mu) ** 2))
            h = self.emb(z)
            h = h + torch.zeros_like(h).index_add(0, i, g * h[j]).index_add(0, j, g * h[i])
            e = self.out(h).sum()
            fx, st = torch.autograd.grad(e, (x, strain), create_graph=self.training)
        return e, -fx, st
m = SchNet()
W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2, amsgrad=True)
for s in range(5):
    z, x = torch.randint(0, 4, (5,)), torch.randn(5, 3) * 1.5
    e, f, st = m(z, x)
    loss = (e - 1).square() + 10 * (f - torch.randn(5, 3) * 0.1).square().mean() + st.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex())
m.eval()
v = torch.zeros(5, 3)
x = x.detach()
with torch.no_grad():
    _, f, _ = m(z, x.clone())
    for _ in range(5):
        v = v + 0.005 * f
        x = x + 0.01 * v
        _, f, _ = m(z, x.clone())
        v = v + 0.005 * f
print(H(x, v, f), M(m), R())
