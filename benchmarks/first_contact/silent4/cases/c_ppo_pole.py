from _training import *
pi, vf = mlp(2, 32, 2, act=nn.Tanh), mlp(2, 32, 1, act=nn.Tanh); opt = torch.optim.Adam([*pi.parameters(), *vf.parameters()], 3e-3); rets = []
for it in range(60):
    S, A, LP, Rw, V = [], [], [], [], []; s = torch.randn(32, 2) * .5
    with torch.no_grad():
        for t in range(16):
            d = torch.distributions.Categorical(logits=pi(s)); a = d.sample(); S.append(s); A.append(a); LP.append(d.log_prob(a)); V.append(vf(s).squeeze(-1))
            v = s[:, 1] + .15 * (2 * a - 1) + .02 * torch.randn(32); s = torch.stack([s[:, 0] + .2 * v, v], -1).clamp(-2, 2); Rw.append(-s[:, 0].abs() - .1 * v.abs())
        V.append(vf(s).squeeze(-1)); adv, g = [], 0
        for t in reversed(range(16)): g = Rw[t] + .95 * V[t + 1] - V[t] + .95 * .9 * g; adv.insert(0, g)
    S, A, LP, adv, V = torch.cat(S), torch.cat(A), torch.cat(LP), torch.cat(adv), torch.cat(V[:-1]); ret = adv + V; rets.append(torch.stack(Rw).mean().item())
    for ep in range(4):
        for i in torch.randperm(512).split(128):
            d = torch.distributions.Categorical(logits=pi(S[i])); r = (d.log_prob(A[i]) - LP[i]).exp(); ad = (adv[i] - adv[i].mean()) / (adv[i].std() + 1e-8)
            loss = -torch.min(r * ad, r.clamp(.8, 1.2) * ad).mean() + .5 * F.mse_loss(vf(S[i]).squeeze(-1), ret[i]) - .01 * d.entropy().mean(); opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_([*pi.parameters(), *vf.parameters()], .5); opt.step()
truth(first=rets[0], last=sum(rets[-5:]) / 5)
