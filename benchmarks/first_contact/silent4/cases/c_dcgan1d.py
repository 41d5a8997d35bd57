from _training import *
G = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16)); D = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(.2), nn.Dropout(.2), nn.Linear(64, 1))
og, od = torch.optim.Adam(G.parameters(), 2e-4, betas=(.5, .999)), torch.optim.Adam(D.parameters(), 2e-4, betas=(.5, .999)); bce = nn.BCEWithLogitsLoss(); t = torch.arange(16) / 16 * 6.28
for step in range(1000):
    real = torch.sin(t + 6.28 * torch.rand(64, 1)); fake = G(torch.randn(64, 8))
    od.zero_grad(); ld = bce(D(real), .9 * torch.ones(64, 1)) + bce(D(fake.detach()), torch.zeros(64, 1)); ld.backward(); od.step()
    og.zero_grad(); lg = bce(D(fake), torch.ones(64, 1)); lg.backward(); og.step()
truth(d=ld.item(), g=lg.item(), fake_std=fake.std().item())
