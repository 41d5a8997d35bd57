"""Multi-resolution STFT losses, mel filters, istft, real and half-complex FFTs of an autoencoder must keep bits, strides, flags and warnings."""
# PRELUDE
import warnings


class AE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.d = nn.Conv1d(1, 8, 16, 8, 4), nn.ConvTranspose1d(8, 1, 16, 8, 4)

    def forward(self, x):
        return torch.tanh(self.d(F.snake(self.e(x)) if hasattr(F, "snake") else torch.sin(self.e(x))))


torch.manual_seed(1)
m = AE()
W(m)
opt = torch.optim.RAdam(m.parameters(), 1e-2)
windows = {n: torch.hann_window(n) for n in (16, 32, 64)}
mel = torch.rand(9, 33).softmax(1)


def mag(x, n):
    z = torch.stft(x, n, n // 4, n, windows[n], return_complex=True)
    return torch.sqrt(torch.clamp(z.real**2 + z.imag**2, min=1e-7)).transpose(2, 1), z


with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for s in range(5):
        x = torch.randn(3, 1, 128, generator=torch.Generator().manual_seed(s)).cumsum(-1) * 0.1
        y = m(x)
        loss = 0
        for n in windows:
            (a, za), (b, zb) = mag(y.squeeze(1), n), mag(x.squeeze(1), n)
            loss = loss + torch.norm(b - a, p="fro") / torch.norm(b, p="fro") + F.l1_loss(torch.log(b), torch.log(a))
            print(s, n, H(a), a.stride(), za.stride(), za._is_view(), za._version, za.grad_fn.name(), a.is_contiguous())
        lm = torch.log10((mag(y.squeeze(1), 64)[0] @ mel.T).clamp(min=1e-5))
        phase = torch.angle(za) - torch.angle(zb)
        loss = loss + lm.mean().abs() + (1 - torch.cos(phase)).mean() + (torch.fft.rfft(y, norm="ortho").abs() - torch.fft.rfft(x, norm="ortho").abs()).square().mean()
        loss = loss + torch.fft.hfft(za[..., 0]).square().mean() * 1e-3 + torch.fft.irfft(za, dim=1).square().mean() + torch.fft.rfft2(y).real.mean() * 0.01
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            z = torch.stft(m(x).squeeze(1), 32, 8, window=windows[32], return_complex=True, onesided=False, center=False)
            back = torch.istft(za.detach(), 64, 16, window=windows[64], length=128, return_complex=False)
            out = torch.empty(3, 65, dtype=torch.complex64)
            torch.fft.rfft(x.squeeze(1), out=out)
            hil = torch.fft.ifft(torch.fft.fft(x) * torch.fft.fftfreq(128).sign())
            print(s, H(z), z.stride(), H(back), back.stride(), H(out), out._version, H(hil), H(torch.fft.fftn(x, dim=(0, 2))), H(torch.fft.ihfft(x)), H(torch.bucketize(z.abs(), torch.linspace(0, 1, 5))))
        print(s, float(loss.detach()).hex(), M(m), [p.grad.stride() for p in m.parameters()])
print([str(w.message)[:120] for w in seen])
try:
    torch.stft(torch.randn(1, 128), 32)
except RuntimeError as e:
    print(str(e)[:150])
