"""DCGAN-like: two models, two optimizers, retained fakes, spectral norm (buffers change in forward)."""
from _c import *
sn = nn.utils.parametrizations.spectral_norm
G = nn.Sequential(nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh()); D = nn.Sequential(sn(nn.Conv2d(1, 16, 4, 2, 1)), nn.LeakyReLU(.2), sn(nn.Conv2d(16, 1, 4)))
og, od = torch.optim.Adam(G.parameters(), 2e-4, (.5, .999)), torch.optim.Adam(D.parameters(), 2e-4, (.5, .999)); bce = nn.BCEWithLogitsLoss()
for s in range(6):
    r = torch.randn(16, 1, 8, 8).tanh(); f = G(torch.randn(16, 8, 1, 1)); od.zero_grad(); lr = bce(D(r), torch.ones(16, 1, 1, 1)); lr.backward(); lf = bce(D(f.detach()), torch.zeros(16, 1, 1, 1)); lf.backward(); od.step()
    og.zero_grad(); lg = bce(D(f), torch.ones(16, 1, 1, 1)); lg.backward(); og.step(); print(s, lr.item().hex(), lf.item().hex(), lg.item().hex())
