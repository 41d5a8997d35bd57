"""From nikhilsinghmus/image2reverb issue 37.
Wrong: the generator's step feeds d(fake.detach()): the adversarial loss never reaches the generator, only the reconstruction loss does.
Could know: partly (as the generator steps, the discriminator's gradients come from a term that gives the generator none).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
g = nn.Sequential(nn.Linear(10, 64), nn.LeakyReLU(.2), nn.Linear(64, 16)); d = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(.2), nn.Linear(64, 1))
og = torch.optim.Adam(g.parameters(), 5e-4, (.5, .999)); od = torch.optim.Adam(d.parameters(), 5e-4, (.5, .999)); W = torch.randn(8, 16)
for step in range(150):
    c = torch.randn(64, 8); real = torch.sin(c @ W) + .3 * torch.randn(64, 16); fake = g(torch.cat([c, torch.randn(64, 2)], 1))
    df = d(fake if H else fake.detach()); G1 = F.mse_loss(df, torch.ones_like(df)); G2 = F.l1_loss(fake, real); lg = G1 + G2
    og.zero_grad(); lg.backward(); og.step()
    dr, df = d(real), d(fake.detach()); ld = .5 * (F.mse_loss(dr, torch.ones_like(dr)) + F.mse_loss(df, torch.zeros_like(df))); od.zero_grad(); ld.backward(); od.step()
    if step % 25 == 0: print(step, round(lg.item(), 4), round(ld.item(), 4))
print("check: D(real) - D(fake) at the end", (dr.mean() - df.mean()).item())
