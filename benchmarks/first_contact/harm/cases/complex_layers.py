"""Complex parameters and activations, view_as_real, FFT layers, conjugate views, gradients of complex leaves.

source: pytorch docs "Complex numbers"; pytorch/pytorch#839 style in-place on leaves' views
"""
import torch
from torch import nn
from fcw import rng, say, seed, sha, watch

seed(20)


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 5, dtype=torch.cfloat) * 0.3)
        self.lin = nn.Linear(8, 8, dtype=torch.complex64)

    def forward(self, x):
        f = torch.fft.rfft(x, n=8)
        f = torch.einsum("bcf,cf->bcf", f, self.w.conj())
        y = torch.fft.irfft(f, n=8)
        z = self.lin(torch.complex(y, x)).conj()
        return torch.view_as_real(z.resolve_conj())


net = Spectral()
watch(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(4):
    out = net(torch.randn(3, 4, 8))
    loss = out.square().mean() + net.w.abs().sum() * 1e-3
    opt.zero_grad()
    loss.backward()
    opt.step()
    say(loss.item().hex(), sha(net.w.grad, net.lin.weight.grad), net.w.grad.is_conj())
say(sha(list(net.state_dict().values()), opt.state_dict()), rng())
