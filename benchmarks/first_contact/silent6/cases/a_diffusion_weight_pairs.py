"""From bayesflow-org/bayesflow issue 787 (Keras; here the same in torch).
Wrong: weights for the noise level have shape (B, 1), the errors (B,): the product is (B, B), and the loss is mean(w) * mean(err).
Could know: yes, by the shapes of the product before the mean.
"""
import sys, torch, torch.nn as nn
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)); opt = torch.optim.Adam(net.parameters(), lr=2e-3)
diff = 0.
for step in range(150):
    x0 = torch.randn(128, 2) * .2 + torch.tensor([1., -1.]) * torch.randint(0, 2, (128, 1)).mul(2).sub(1)
    log_snr = torch.empty(128, 1).uniform_(-4, 6); a = torch.sigmoid(log_snr).sqrt(); s = torch.sigmoid(-log_snr).sqrt()
    eps = torch.randn_like(x0); pred = net(torch.cat([a * x0 + s * eps, log_snr / 5], 1))
    w = torch.sigmoid(2 - log_snr) * (1 + log_snr.exp()).clamp(max=50)
    err = ((pred - eps) ** 2).mean(-1)
    loss = ((w.squeeze(-1) if H else w) * err).mean()
    diff = (w * err).mean().item() - (w[:, 0] * err).mean().item()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 25 == 0: print(step, round(loss.item(), 4))
print("check: loss of pairs minus loss of samples at the last step", diff)
