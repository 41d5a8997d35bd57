# what: a spiking network by snntorch: Leaky neurons with hidden state, surrogate gradients, 20 time steps of BPTT
# PRELUDE
import snntorch as snn
from snntorch import surrogate
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(8, 16); self.l = snn.Leaky(beta=.9, spike_grad=surrogate.fast_sigmoid(), learn_beta=True); self.b = nn.Linear(16, 4); self.m = snn.Leaky(beta=.8, spike_grad=surrogate.atan(), init_hidden=False)
    def forward(self, x):
        u, v = self.l.init_leaky(), self.m.init_leaky(); out = []
        for _ in range(20): s, u = self.l(self.a(x), u); s, v = self.m(self.b(s), v); out.append(v)
        return torch.stack(out)
m = Net(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(4): x, y = batch(s); opt.zero_grad(); l = sum(F.mse_loss(o, y) for o in m(x)); l.backward(); opt.step(); print(float(l.detach()).hex())
print(M(m), R())
