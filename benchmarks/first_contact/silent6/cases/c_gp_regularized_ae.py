"""Healthy: an autoencoder with a contractive (double-backward) penalty whose weight is annealed, noise that shrinks, and ReduceLROnPlateau.
500 steps."""
import sys, math, copy, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0); torch.set_num_threads(1)
e = nn.Sequential(nn.Linear(20, 48), nn.Softplus(), nn.Linear(48, 4)); d = nn.Sequential(nn.Linear(4, 48), nn.Softplus(), nn.Linear(48, 20)); opt = torch.optim.NAdam([*e.parameters(), *d.parameters()], 3e-3); sch = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=5); A = torch.randn(4, 20); hist = []
for step in range(500):
    x = torch.tanh(torch.randn(64, 4) @ A); xi = (x + .3 * .99 ** step * torch.randn_like(x)).requires_grad_(); z = e(xi); g, = torch.autograd.grad((z * torch.randn_like(z)).sum(), xi, create_graph=True); loss = F.mse_loss(d(z), x) + .02 * min(1, step / 200) * (g ** 2).sum(1).mean(); opt.zero_grad(); loss.backward(); opt.step(); hist.append(loss.item())
    if step % 20 == 19: sch.step(sum(hist[-20:]) / 20)
    if step % 50 == 0: print(step, loss.item())
