"""VQ-VAE: straight-through estimator, an EMA codebook in buffers changed within the forward, dead codes restarted from the batch, the codebook's usage by bincount; weights, codes."""
# PRELUDE
class VQ(nn.Module):
    def __init__(self, n=16, d=4):
        super().__init__()
        self.register_buffer("e", torch.randn(n, d))
        self.register_buffer("c", torch.zeros(n))
        self.register_buffer("s", self.e.clone())

    def forward(self, z):
        i = torch.cdist(z, self.e).argmin(-1)
        q = self.e[i]
        if self.training:
            with torch.no_grad():
                o = F.one_hot(i, 16).type_as(z)
                self.c.lerp_(o.sum(0), 0.1)
                self.s.lerp_(o.T @ z, 0.1)
                self.e.copy_(self.s / (self.c[:, None] + 1e-5))
                dead = self.c < 0.01
                self.e[dead] = z[torch.randint(0, len(z), (int(dead.sum()),))]
                self.s[dead], self.c[dead] = self.e[dead], 1.0
        return z + (q - z).detach(), i, F.mse_loss(z, q.detach())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.q, self.b = nn.Linear(8, 4), VQ(), nn.Linear(4, 8)

    def forward(self, x):
        z, i, commit = self.q(self.a(x))
        return self.b(z), i, commit


m = Net()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(6):
    x = batch(s, n=20)[0]
    y, i, c = m(x)
    loss = F.mse_loss(y, x) + 0.25 * c
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), i.tolist()[:6], H(m.q.e, m.q.c), R())
m.eval()
print(M(m), m(batch(0)[0])[1].tolist())
