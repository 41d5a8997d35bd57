# what: neural ODE by torchdiffeq: dopri5 with adjoint, count of function evaluations, an event, an underflow error caught
# benign: yes
# cmp: status stdout files left
# PRELUDE
from torchdiffeq import odeint, odeint_adjoint
class Fn(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)); self.nfe = 0
    def forward(self, t, y): self.nfe += 1; return self.f(y ** 3)
m = Fn(); W(m); opt = torch.optim.RMSprop(m.parameters(), lr=1e-3); y0 = torch.tensor([[2., 0.]]); t = torch.linspace(0., 1., 6)
for s in range(3):
    opt.zero_grad(); y = (odeint_adjoint if s % 2 else odeint)(m, y0, t, rtol=1e-3, atol=1e-4, method="dopri5"); l = (y - 1).abs().mean(); l.backward(); opt.step(); print(m.nfe, float(l.detach()).hex())
try:
    with torch.no_grad(): odeint(lambda t, y: y / (1e-30 * (.5 - t)), y0, t)
except AssertionError as e: print("AssertionError", str(e)[:40])
print(M(m), m.nfe, R())
