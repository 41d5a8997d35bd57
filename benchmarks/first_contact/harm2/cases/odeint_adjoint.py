"""torchdiffeq's adjoint: autograd inside a custom Function's backward, the module called hundreds of times; number of function evaluations.

Source: https://github.com/pytorch/pytorch/issues/51978
"""
# PRELUDE
from torchdiffeq import odeint_adjoint
class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        self.calls = 0
    def forward(self, t, y):
        self.calls += 1
        return self.n(y ** 3)
torch.manual_seed(0)
m = Field(); W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for s in range(3):
    y = odeint_adjoint(m, torch.tensor([[1.0, 0.0]]), torch.linspace(0, 1, 4), method="dopri5")
    loss = (y - 0.5).abs().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex(), m.calls)
print(M(m), R())
