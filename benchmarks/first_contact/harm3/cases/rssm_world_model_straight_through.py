"""A recurrent state-space model: GRU cell in a Python loop, straight-through categorical samples, KL balancing of torch.distributions, imagined rollouts, lambda returns, three optimizers, frozen parts."""
# PRELUDE
import torch.distributions as D


class RSSM(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.prior, self.post, self.dec = nn.GRUCell(8 + 2, 12), nn.Linear(12, 8), nn.Linear(12 + 8, 8), nn.Linear(20, 8)

    def dist(self, l):
        return D.Independent(D.OneHotCategoricalStraightThrough(logits=l.view(-1, 2, 4)), 1)

    def step(self, h, z, a, x=None):
        h = self.cell(torch.cat([z, a], -1), h)
        p = self.prior(h)
        q = self.post(torch.cat([h, x], -1)) if x is not None else p
        return h, self.dist(q).rsample().flatten(1), p, q


m, actor, critic = RSSM(), nn.Linear(20, 2), nn.Linear(20, 1)
W(m), W(actor), W(critic)
om, oa, oc = torch.optim.Adam(m.parameters(), 1e-3), torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
for s in range(3):
    xs = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(s))
    h, z = torch.zeros(3, 12), torch.zeros(3, 8)
    loss, hs = 0, []
    for x in xs:
        h, z, p, q = m.step(h, z, torch.zeros(3, 2), x)
        kl = 0.8 * D.kl_divergence(m.dist(q.detach()), m.dist(p)).mean() + 0.2 * D.kl_divergence(m.dist(q), m.dist(p.detach())).mean()
        loss = loss + F.mse_loss(m.dec(torch.cat([h, z], -1)), x) + torch.clamp(kl, min=0.1)
        hs.append((h.detach(), z.detach()))
    om.zero_grad()
    loss.backward()
    om.step()
    for p in m.parameters():
        p.requires_grad_(False)
    h, z = (torch.cat(v) for v in zip(*hs))
    feats = []
    for _ in range(3):
        f = torch.cat([h, z], -1)
        feats.append(f)
        h, z, _, _ = m.step(h, z, torch.tanh(actor(f.detach())))
    feats.append(torch.cat([h, z], -1))
    v = [critic(f) for f in feats]
    ret = v[-1]
    for f, val in zip(feats[-2::-1], v[-2::-1]):
        ret = f.mean(-1, keepdim=True) + 0.9 * (0.05 * val + 0.95 * ret)
    la = -ret.mean()
    oa.zero_grad()
    la.backward()
    oa.step()
    oc.zero_grad()
    lc = F.mse_loss(critic(feats[0].detach()), ret.detach())
    lc.backward()
    oc.step()
    for p in m.parameters():
        p.requires_grad_(True)
    print(s, loss.item().hex(), la.item().hex(), lc.item().hex(), R())
print(M(m), M(actor), M(critic))
