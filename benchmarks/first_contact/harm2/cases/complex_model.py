"""Complex parameters, FFTs, view_as_real, conj views: bits and lazy conj/neg flags.

Source: https://github.com/pytorch/pytorch/pull/80315
"""
# PRELUDE
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.w = nn.Parameter(torch.randn(5, 3, dtype=torch.cfloat) * 0.3); self.l = nn.Linear(8, 3, dtype=torch.cfloat)
    def forward(self, x):
        f = torch.fft.rfft(x)[:, :5] @ self.w; g = self.l(x.to(torch.cfloat)).conj()
        return f + g, g, g.imag
m = Net(); W(m)
for opt in (torch.optim.SGD(m.parameters(), 1e-2, momentum=0.9), torch.optim.Adam(m.parameters(), 1e-2)):
    for s in range(3):
        a, g, i = m(batch(s)[0])
        print(g.is_conj(), i.is_neg(), torch.view_as_real(a).stride())
        loss = a.abs().square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex())
print(M(m))
