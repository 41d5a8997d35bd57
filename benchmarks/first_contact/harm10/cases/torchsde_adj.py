#: what: a neural SDE solved with torchsde: Brownian interval seeded, adjoint backward, f and g called by the solver hundreds of times
#: source: https://github.com/google-research/torchsde
# PRELUDE
import torchsde
class SDE(nn.Module):
    noise_type, sde_type = "diagonal", "ito"
    def __init__(self): super().__init__(); self.mu = nn.Sequential(nn.Linear(3, 12), nn.Softplus(), nn.Linear(12, 3)); self.sig = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid()); self.n = 0
    def f(self, t, y): self.n += 1; return self.mu(y)
    def g(self, t, y): return 0.1 * self.sig(y)
m = SDE(); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2); ts = torch.linspace(0, 1, 5)
for s in range(4):
    bm = torchsde.BrownianInterval(0.0, 1.0, size=(6, 3), entropy=s, dtype=torch.float32); y = (torchsde.sdeint_adjoint if s % 2 else torchsde.sdeint)(m, torch.full((6, 3), 0.1), ts, bm=bm, method="euler", dt=0.1)
    l = (y[-1] - 1).pow(2).mean(); opt.zero_grad(); l.backward(); opt.step(); print(l.item(), m.n)
show(m, opt)
