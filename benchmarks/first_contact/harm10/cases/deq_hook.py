#: what: deep equilibrium model: fixed point without grad, a hook on the output solves the adjoint by autograd.grad inside backward and removes itself
#: source: https://implicit-layers-tutorial.org/deep_equilibrium_models/
# PRELUDE
class Cell(nn.Module):
    def __init__(self, n=12): super().__init__(); self.w, self.u = nn.Linear(n, n), nn.Linear(n, n); self.norm = nn.LayerNorm(n); nn.init.normal_(self.w.weight, std=0.03)
    def forward(self, z, x): return self.norm(torch.tanh(self.w(z) + self.u(x)) * 0.5 + 0.1 * x)
class DEQ(nn.Module):
    def __init__(self, f): super().__init__(); self.f = f; self.calls = 0; self.hook = None
    def solve(self, g, z):
        for i in range(12):
            z2 = g(z); self.calls += 1
            if (z2 - z).norm() < 1e-4 * (1e-8 + z2.norm()): break
            z = z2
        return z2
    def forward(self, x):
        with torch.no_grad(): z = self.solve(lambda z: self.f(z, x), torch.zeros_like(x))
        z = self.f(z, x); z0 = z.clone().detach().requires_grad_(); f0 = self.f(z0, x)
        def back(g):
            if self.hook is not None: self.hook.remove(); torch._C._get_tracing_state()
            return self.solve(lambda y: torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + g, g)
        if z.requires_grad: self.hook = z.register_hook(back)
        return z
m = nn.Sequential(nn.Linear(5, 12), DEQ(Cell()), nn.Linear(12, 3)); watch(m); opt = torch.optim.Adam(m.parameters(), 1e-2)
for step in range(10):
    x = torch.randn(8, 5); loss = F.cross_entropy(m(x), (x[:, 0] > 0).long()); opt.zero_grad(); loss.backward(); opt.step(); print(step, loss.item(), m[1].calls)
show(m, opt)
