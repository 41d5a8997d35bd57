"""A Fourier neural operator: rfft2, complex weights stored as parameters, einsum over modes in place into a zero spectrum, irfft2, H1 loss by finite differences; bits of complex gradients."""
# PRELUDE
class Spec(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.k = k
        self.w = nn.Parameter(torch.randn(2, c, c, k, k, dtype=torch.cfloat) / c)

    def forward(self, x):
        f = torch.fft.rfft2(x, norm="ortho")
        o = torch.zeros_like(f)
        o[..., : self.k, : self.k] = torch.einsum("bixy,ioxy->boxy", f[..., : self.k, : self.k], self.w[0])
        o[..., -self.k :, : self.k] = torch.einsum("bixy,ioxy->boxy", f[..., -self.k :, : self.k], self.w[1])
        return torch.fft.irfft2(o, s=x.shape[-2:], norm="ortho")


class FNO(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.o = nn.Conv2d(1, 6, 1), nn.Conv2d(6, 1, 1)
        self.s = nn.ModuleList(Spec(6, 3) for _ in range(2))
        self.c = nn.ModuleList(nn.Conv2d(6, 6, 1) for _ in range(2))

    def forward(self, x):
        x = self.i(x)
        for s, c in zip(self.s, self.c):
            x = F.gelu(s(x) + c(x))
        return self.o(x)


m = FNO()
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-2)
for k in range(4):
    x = torch.randn(2, 1, 12, 12, generator=torch.Generator().manual_seed(k))
    t = torch.roll(x, 1, -1)
    e = m(x) - t
    loss = e.square().mean() + 0.1 * (e.diff(dim=-1).square().mean() + e.diff(dim=-2).square().mean())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(k, loss.item().hex())
print(M(m))
