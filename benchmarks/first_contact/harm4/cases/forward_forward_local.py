"""Hinton's forward-forward: each layer has an optimizer and a loss of its own, layers are trained one after the other, detached, inside forward."""
# PRELUDE
class FF(nn.Linear):
    def __init__(self, i, o):
        super().__init__(i, o)
        self.opt = torch.optim.Adam(self.parameters(), 0.03)

    def forward(self, x):
        d = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return super().forward(d).relu()

    def fit(self, pos, neg):
        for _ in range(3):
            gp, gn = self(pos).pow(2).mean(1), self(neg).pow(2).mean(1)
            loss = F.softplus(torch.cat([2.0 - gp, gn - 2.0])).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return self(pos).detach(), self(neg).detach(), float(loss.detach()).hex()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([FF(12, 16), FF(16, 16), FF(16, 8)])

    def forward(self, x):
        g = 0
        for l in self.layers:
            x = l(x)
            g = g + x.pow(2).mean(1)
        return g

    def fit(self, pos, neg):
        out = []
        for l in self.layers:
            pos, neg, loss = l.fit(pos, neg)
            out.append(loss)
        return out


m = Net()
W(m)
for s in range(5):
    x, y = batch(s)
    pos, neg = torch.cat([x, y], 1), torch.cat([x, y.roll(1, 0)], 1)
    print(s, m.fit(pos, neg))
    with torch.no_grad():
        print(H(m(pos), m(neg)))
print(M(m), R())
