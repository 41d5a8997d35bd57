# what: diffusion trainer written as generators and context managers: yield within the step (between forward and backward), close() early, EMA by deepcopy
# PRELUDE
import contextlib, copy
class Diff(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8)); self.register_buffer("ac", torch.cumprod(1 - torch.linspace(1e-4, .02, 20), 0))
    def forward(self, x): t = torch.randint(0, 20, (len(x),)); e = torch.randn_like(x); a = self.ac[t, None]; return F.mse_loss(self.f(torch.cat([a.sqrt() * x + (1 - a).sqrt() * e, t[:, None] / 20], 1)), e)
    @torch.inference_mode()
    def sample(self, n):
        x = torch.randn(n, 8)
        for t in reversed(range(20)): a = self.ac[t]; x = x - .1 * self.f(torch.cat([x, torch.full((n, 1), t / 20)], 1)); yield x.clone()
@contextlib.contextmanager
def step(opt):
    opt.zero_grad()
    try: yield
    finally: opt.step()
m = Diff(); W(m); ema = copy.deepcopy(m); opt = torch.optim.AdamW(m.parameters(), lr=.01)
def steps():
    try:
        for s in range(50):
            with step(opt): l = m(batch(s)[0]); yield "loss", float(l.detach()).hex(); l.backward()
            for p, q in zip(ema.parameters(), m.parameters()): p.data.lerp_(q.data, .1)
            yield "step", s
    finally: print("closed")
g = steps()
for k, v in g:
    if k == "loss": print(v)
    if (k, v) == ("step", 3): g.close(); break
sm = ema.sample(3); print(H(next(sm)), H(next(sm))); print(H(*m.sample(2)), torch.is_inference_mode_enabled()); sm.close()
print(M(m), M(ema), torch.randn(2, requires_grad=True).is_inference(), R())
