"""torchsde: sdeint_adjoint of a latent SDE with a Brownian interval of fixed entropy: gradients through a custom Function, numbers of calls of drift and diffusion."""
# PRELUDE
import torchsde


class SDE(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 3))
        self.sigma = nn.Sequential(nn.Linear(3, 6), nn.Softplus(), nn.Linear(6, 3), nn.Sigmoid())
        self.calls = [0, 0]

    def f(self, t, y):
        self.calls[0] += 1
        return self.mu(y)

    def g(self, t, y):
        self.calls[1] += 1
        return 0.2 * self.sigma(y)


m = SDE()
W(m)
opt = torch.optim.Adam(m.parameters(), lr=0.01)
ts = torch.linspace(0, 1, 6)
for s in range(4):
    opt.zero_grad()
    y0 = torch.full((5, 3), 0.1 * (s + 1))
    bm = torchsde.BrownianInterval(0.0, 1.0, size=(5, 3), entropy=s)
    f = torchsde.sdeint_adjoint if s % 2 else torchsde.sdeint
    ys = f(m, y0, ts, bm=bm, dt=0.1, method="euler")
    loss = (ys[-1] - 1).pow(2).mean()
    loss.backward()
    opt.step()
    print(s, loss.item().hex(), m.calls, H(ys))
print(M(m), R())
