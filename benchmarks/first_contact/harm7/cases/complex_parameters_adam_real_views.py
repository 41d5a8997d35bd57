"""Complex weights stepped by Adam, by hand through view_as_real and through .real and .imag views, with a phase retrieval loss, must keep bits and versions."""
# PRELUDE
class CNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 12, dtype=torch.cfloat), nn.Linear(12, 8, dtype=torch.cfloat)
        self.bias = nn.Parameter(torch.zeros(12))

    def forward(self, x):
        h = self.a(x)
        h = torch.relu(h.abs() + self.bias) * torch.sgn(h)
        return self.b(torch.fft.ifft(torch.fft.fft(h) * h.conj().mean(0)))


for kind in ("adam", "foreach", "hand", "lbfgs"):
    torch.manual_seed(1)
    m = CNet()
    W(m)
    opt = torch.optim.LBFGS(m.parameters(), 0.1, max_iter=3) if kind == "lbfgs" else torch.optim.Adam(m.parameters(), 1e-2, foreach=kind == "foreach", weight_decay=1e-3)
    for s in range(4):
        x, y = batch(s, 6, 8, 8)
        x, y = torch.complex(x, x.flip(0)), y.abs()

        def closure():
            opt.zero_grad()
            f = torch.fft.fftshift(torch.fft.fft2(m(x)))
            loss = F.mse_loss(f.abs(), y) + 1e-3 * sum(torch.linalg.vector_norm(p) for p in m.parameters()) + 1e-3 * torch.angle(m(x)).square().mean()
            loss.backward()
            return loss

        if kind == "hand":
            loss = closure()
            with torch.no_grad():
                for p in m.parameters():
                    v = torch.view_as_real(p) if p.is_complex() else p
                    g = torch.view_as_real(p.grad) if p.is_complex() else p.grad
                    v.sub_(g, alpha=0.01)
                    if p.is_complex():
                        p.real.clamp_(-1, 1)
                        p.imag.mul_(0.99)
                        p.grad.conj_physical_()
                    print(kind, s, p._version, v._version, p.grad._version, p.grad.is_conj())
        else:
            loss = opt.step(closure)
        n = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        print(kind, s, float(loss.detach()).hex(), H(n), M(m), [p._version for p in m.parameters()])
        with torch.no_grad():
            o = m(x)
            print(kind, s, H(o), H(o.conj()), H(o.mH @ o), H(o.real.var(0)), H(torch.fft.ihfft(o.real)), H(torch.linalg.vector_norm(o, float("inf"))), H(o.std()), H(torch.view_as_complex(torch.view_as_real(o).neg())))
