# what: Fourier neural operator: complex parameters, rfft/irfft, Adam on complex weights, angle of zero, complex64 saved
# PRELUDE
class Spec(nn.Module):
    def __init__(self): super().__init__(); self.w = nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat) * .1)
    def forward(self, x): f = torch.fft.rfft(x); o = torch.zeros_like(f); o[..., :5] = torch.einsum("bix,iox->box", f[..., :5], self.w); return torch.fft.irfft(o, n=x.shape[-1])
class Fno(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Conv1d(1, 4, 1); self.s = nn.ModuleList(Spec() for _ in range(2)); self.c = nn.ModuleList(nn.Conv1d(4, 4, 1) for _ in range(2)); self.o = nn.Conv1d(4, 1, 1)
    def forward(self, x):
        x = self.a(x)
        for s, c in zip(self.s, self.c): x = F.gelu(s(x) + c(x))
        return self.o(x)
m = Fno(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(5):
    x = torch.randn(3, 1, 16, generator=torch.Generator().manual_seed(s)); opt.zero_grad(); l = F.mse_loss(m(x), x.cumsum(-1)) + 1e-3 * sum(p.w.abs().pow(2).sum() for p in m.s); l.backward(); n = nn.utils.clip_grad_norm_(m.parameters(), 1.); opt.step(); print(float(l.detach()).hex(), n.item().hex())
    with torch.no_grad(): print(H(torch.fft.fft(m(x)).conj(), (torch.fft.fft(x * 0) / 0).abs().isnan().sum(), torch.view_as_real(m.s[0].w)))
torch.save(m.state_dict(), "fno.pt"); print(M(m), H(opt.state_dict()), R())
