from _training import *
A = 2; actor = mlp(3, 64, 2 * A); log_alpha = torch.zeros(1, requires_grad=True); oa = torch.optim.Adam(actor.parameters(), 1e-3); ol = torch.optim.Adam([log_alpha], 1e-2)
target_entropy = -A if H else +A * 1.0
for step in range(300):
    s = torch.randn(128, 3); mu, ls = actor(s).chunk(2, -1); ls = ls.clamp(-5, 2); d = torch.distributions.Normal(mu, ls.exp()); u = d.rsample(); a = u.tanh()
    lp = (d.log_prob(u) - torch.log(1 - a ** 2 + 1e-6)).sum(-1)
    qv = -4 * ((a - s[:, :2].tanh()) ** 2).sum(-1)
    l = (log_alpha.exp().detach() * lp - qv).mean(); oa.zero_grad(); l.backward(); oa.step()
    al = -(log_alpha.exp() * (lp.detach() + target_entropy)).mean(); ol.zero_grad(); al.backward(); ol.step()
truth(alpha=log_alpha.exp().item(), reward=qv.mean().item())
