#: what: PPO with invalid actions at -inf: entropy is 0*-inf, masked; log-probabilities of forbidden actions -inf in the logs
#: benign: -inf logits and nan entropies of masked actions
#: source: https://github.com/thu-ml/tianshou/issues/887
# PRELUDE
class AC(nn.Module):
    def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh()); self.pi, self.v = nn.Linear(32, 5), nn.Linear(32, 1)
    def forward(self, s, mask):
        h = self.body(s); return self.pi(h).masked_fill(~mask, float("-inf")), self.v(h).squeeze(-1)
m = AC(); watch(m); opt = torch.optim.Adam(m.parameters(), 3e-3, eps=1e-5)
def ent(logits, mask):
    lp = logits.log_softmax(-1); raw = -(lp.detach().exp() * lp.detach()).sum(-1)        # nan, logged
    return -(lp.exp() * lp.masked_fill(~mask, 0.0)).sum(-1), raw
nans = 0
for it in range(8):
    with torch.no_grad():
        s = torch.randn(64, 6); mask = torch.rand(64, 5) < 0.6; mask[:, 0] = True
        lg, v = m(s, mask); a = torch.distributions.Categorical(logits=lg).sample(); old = lg.log_softmax(-1).gather(1, a[:, None]).squeeze(1); r = (a == 0).float() + 0.1 * torch.randn(64)
        adv = r - v; ret = r.clone()
    for ep in range(3):
        for ix in torch.randperm(64).split(16):
            lg, v = m(s[ix], mask[ix]); new = lg.log_softmax(-1).gather(1, a[ix, None]).squeeze(1)
            ratio = (new - old[ix]).exp(); A = adv[ix]; A = (A - A.mean()) / (A.std() + 1e-8)
            e, raw = ent(lg, mask[ix]); nans += int(torch.isnan(raw).sum())
            loss = -torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean() + 0.5 * F.mse_loss(v, ret[ix]) - 0.01 * e.mean()
            opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 0.5); opt.step()
    print(it, loss.item(), nans)
show(m, opt)
