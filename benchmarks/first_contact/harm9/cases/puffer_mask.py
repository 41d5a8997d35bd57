"""Policy gradient with invalid actions at -inf in a Categorical, entropy by torch.where, value of terminal states nan and left out."""
# PRELUDE
from torch.distributions import Categorical
seed(23)


class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Sequential(nn.Linear(6, 32), nn.Tanh()), nn.Linear(32, 5), nn.Linear(32, 1)

    def forward(self, s, mask):
        h = self.body(s)
        return torch.where(mask, self.pi(h), torch.tensor(-torch.inf)), self.v(h).squeeze(-1)


net = AC()
watch(net)
opt = torch.optim.Adam(net.parameters(), 3e-3, eps=1e-5)
for it in range(8):
    S, A, L, M, R = [], [], [], [], []
    s = torch.randn(4, 6)
    for t in range(16):
        mask = torch.rand(4, 5) > 0.4
        mask[:, 0] = True
        with torch.no_grad():
            lo, v = net(s, mask)
            d = Categorical(logits=lo, validate_args=False)
            a = d.sample()
        S.append(s); A.append(a); L.append(d.log_prob(a)); M.append(mask)
        r = s[:, 0] * (a == 1) - 0.1
        R.append(torch.where(torch.rand(4) < 0.1, torch.tensor(float("nan")), r))
        s = torch.randn(4, 6) * 0.5 + s * 0.5
    R = torch.stack(R)
    ok = ~R.isnan()
    G = torch.zeros(4)
    rets = []
    for r, k in zip(R.flip(0), ok.flip(0)):
        G = torch.where(k, r + 0.9 * G, torch.zeros(4))
        rets.append(G)
    rets = torch.stack(rets[::-1])
    S, A, L, M = map(torch.stack, (S, A, L, M))
    for _ in range(2):
        lo, v = net(S, M)
        lp = lo.log_softmax(-1)
        new = lp.gather(-1, A[..., None]).squeeze(-1)
        ent = -torch.where(M, lp.exp() * torch.where(M, lp, 0.0), 0.0).sum(-1)
        adv = rets - v.detach()
        adv = (adv - adv[ok].mean()) / (adv[ok].std() + 1e-8)
        ratio = (new - L).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)[ok].mean()
        loss = pg + 0.5 * (rets - v)[ok].pow(2).mean() - 0.01 * ent[ok].mean()
        opt.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
    print(it, dig(loss, new, ent), int((~ok).sum()))
end(net, opt)
