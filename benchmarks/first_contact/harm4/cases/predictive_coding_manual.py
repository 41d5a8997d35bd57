"""Predictive coding: hidden states are leaves that relax by their own optimizer for some iterations, then weights take local updates, by hand, without backward on a loss of the model."""
# PRELUDE
class PC(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 12), nn.Linear(12, 12), nn.Linear(12, 4)])

    def forward(self, x):
        for l in self.layers:
            x = l(x.tanh())
        return x

    def energy(self, states):
        return sum((b - l(a.tanh())).square().sum() for l, a, b in zip(self.layers, states, states[1:]))


m = PC()
W(m)
for s in range(6):
    x, y = batch(s)
    with torch.no_grad():
        states = [x]
        for l in m.layers:
            states.append(l(states[-1].tanh()))
    states = [states[0]] + [t.clone().requires_grad_() for t in states[1:-1]] + [y]
    relax = torch.optim.SGD(states[1:-1], 0.05)
    for _ in range(5):
        relax.zero_grad()
        m.energy(states).backward(inputs=states[1:-1])
        relax.step()
    grads = torch.autograd.grad(m.energy([t.detach() for t in states]), list(m.parameters()))
    with torch.no_grad():
        for p, g in zip(m.parameters(), grads):
            p -= 0.01 * g
        print(s, float(F.mse_loss(m(x), y)).hex(), [p.grad is None for p in m.parameters()])
print(M(m), R())
