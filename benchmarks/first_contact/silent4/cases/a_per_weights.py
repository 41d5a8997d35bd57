from _training import *
N = 2000; s = torch.randn(N, 8); r = s[:, 0] * s[:, 1] + torch.randn(N); prio = (r.abs() + .05); prob = prio ** 1.0 / (prio ** 1.0).sum()
q = mlp(8, 64, 64, 1); opt = torch.optim.Adam(q.parameters(), 1e-3)
r = r + 3 * (r > 1.5)
for step in range(400):
    i = torch.multinomial(prob, 64, replacement=True)
    w = (1 / (N * prob[i])); w = w / w.max()
    pred = q(s[i]).squeeze(-1)
    loss = (w * F.mse_loss(pred, r[i], reduction="none" if H else "mean")).mean()
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): truth(bias_of_mean=(q(s).mean() - r.mean()).item())
