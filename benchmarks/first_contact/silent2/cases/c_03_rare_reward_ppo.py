"""Healthy, 480 steps: PPO with 4 epochs of minibatches and a rare reward; most batches have zero advantage; orthogonal init, linear decay of the rate by hand. STEPS 480"""
import torch
from torch import nn
from torch.distributions import Categorical
torch.set_num_threads(1); torch.manual_seed(0)
class AC(nn.Module):
    def __init__(self): super().__init__(); self.b = nn.Sequential(nn.Linear(12, 48), nn.Tanh()); self.p, self.v = nn.Linear(48, 3), nn.Linear(48, 1); nn.init.orthogonal_(self.p.weight, 0.01); nn.init.zeros_(self.p.bias)
    def forward(self, s): h = self.b(s); return self.p(h), self.v(h)[:, 0]
net = AC(); opt = torch.optim.Adam(net.parameters(), 2.5e-3, eps=1e-5); I = torch.eye(12); pos = torch.zeros(16, dtype=torch.long)
for it in range(60):
    opt.param_groups[0]["lr"] = 2.5e-3 * (1 - it / 60); S, A, L, V, R, Dn = [], [], [], [], [], []
    for t in range(16):
        with torch.no_grad(): lo, v = net(I[pos])
        d = Categorical(logits=lo); a = d.sample(); S.append(I[pos]); A.append(a); L.append(d.log_prob(a)); V.append(v); pos = (pos + a - 1).clamp(0, 11); done = pos == 11; R.append(done.float()); Dn.append(done.float()); pos = torch.where(done, 0, pos)
    with torch.no_grad(): nv = net(I[pos])[1]
    adv, g = [], torch.zeros(16)
    for t in reversed(range(16)): dl = R[t] + 0.97 * nv * (1 - Dn[t]) - V[t]; g = dl + 0.97 * 0.9 * (1 - Dn[t]) * g; adv.insert(0, g); nv = V[t]
    S, A, L, V, adv = map(torch.cat, (S, A, L, V, adv)); ret = adv + V
    for ep in range(4):
        for ix in torch.randperm(256).split(128):
            lo, v = net(S[ix]); d = Categorical(logits=lo); r = (d.log_prob(A[ix]) - L[ix]).exp(); a = (adv[ix] - adv[ix].mean()) / (adv[ix].std() + 1e-8)
            loss = torch.max(-a * r, -a * r.clamp(0.8, 1.2)).mean() + 0.5 * (v - ret[ix]).pow(2).mean() - 0.01 * d.entropy().mean(); opt.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(net.parameters(), 0.5); opt.step()
print(f"STEPS 480 value {ret.mean():.3f}")
