"""From dragen1860/IntroVAE-Pytorch issue 3.
Wrong: in the decoder's update the encoder gets xp.detach(): the adversarial term gives the decoder no gradient.
Could know: partly (a part of the loss that backward is called on has no way to the weights that step; the rest has).
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
E = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)); G = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 8))
oe, og = torch.optim.Adam(E.parameters(), lr=1e-3), torch.optim.Adam(G.parameters(), lr=1e-3); A = torch.randn(2, 8)
def kl(h): mu, lv = h.chunk(2, 1); return -0.5 * (1 + lv - mu ** 2 - lv.exp()).sum(1).mean()
def rep(h): mu, lv = h.chunk(2, 1); return mu + (0.5 * lv).exp() * torch.randn_like(mu)
for step in range(150):
    x = torch.tanh(torch.randn(64, 2) @ A); h = E(x); xr = G(rep(h)); xp = G(torch.randn(64, 2))
    le = F.mse_loss(xr, x) * 8 + .1 * (kl(h) + F.relu(3 - kl(E(xp.detach())))); oe.zero_grad(); le.backward(); oe.step()
    z = rep(E(x)).detach(); xr = G(z); xp = G(torch.randn(64, 2)); adv = kl(E(xp if H else xp.detach()))
    lg = F.mse_loss(xr, x) * 8 + .1 * adv
    og.zero_grad(); g = torch.autograd.grad(adv, list(G.parameters()), retain_graph=True, allow_unused=True) if step == 149 else None; lg.backward(); og.step()
    if step % 25 == 0: print(step, round(le.item(), 4), round(lg.item(), 4))
print("check: the adversarial term has a gradient into the decoder", g[0] is not None)
