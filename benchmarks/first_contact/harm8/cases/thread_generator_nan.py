# what: a worker thread is busy; an evaluation with a harmless nan draws from numpy and torch generators kept in a module, a global and a closure
# benign: yes
# PRELUDE
import threading
stop = threading.Event(); beat = [0]
def work():
    while not stop.is_set(): beat[0] += 1; sum(range(2000))
threading.Thread(target=work, daemon=True).start()
G = torch.Generator().manual_seed(4); rng = np.random.default_rng(5); it = iter(range(1000)); hist = []
class Noisy(nn.Module):
    def __init__(self): super().__init__(); self.f = net(); self.g = torch.Generator().manual_seed(7); self.r = np.random.default_rng(8); self.py = random.Random(9); self.n = 0
    def forward(self, x):
        self.n += 1; hist.append(next(it))
        z = self.f(x + torch.randn(x.shape, generator=self.g) + torch.from_numpy(self.r.normal(size=x.shape).astype("f4")) + self.py.random() + float(rng.normal()) + torch.rand(1, generator=G))
        return z if self.training else z / (z - z.detach()).abs() * 0
m = Noisy(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.1)
for s in range(5):
    print(train(m, opt, 2, 2 * s)); m.eval()
    with torch.no_grad(): print(m(batch(40)[0]).isnan().all().item(), m.n, hist[-1], len(hist))
    m.train(); print(H(G.get_state(), m.g.get_state(), repr(m.r.bit_generator.state), repr(rng.bit_generator.state), m.py.getstate()), R())
stop.set(); print(M(m))
