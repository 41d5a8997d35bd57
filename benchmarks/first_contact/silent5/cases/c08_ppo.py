import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# PPO with GAE, four epochs a batch, entropy bonus, annealed rate
class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Linear(4, 48), nn.Linear(48, 2), nn.Linear(48, 1)

    def forward(self, s):
        h = torch.tanh(self.body(s))
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


net = AC()
opt = torch.optim.Adam(net.parameters(), lr=2e-3, eps=1e-5)
N, T = 8, 16
s = torch.randn(N, 4)
steps = 0
for it in range(50):
    opt.param_groups[0]["lr"] = 2e-3 * (1 - it / 50)
    B = []
    with torch.no_grad():
        for t in range(T):
            d, v = net(s)
            a = d.sample()
            s2 = 0.95 * s + 0.2 * torch.randn(N, 4)
            s2[:, 0] += torch.where(a == 1, 0.3, -0.3)
            r = (1 - s2[:, 0].abs()).clamp(-1, 1)
            done = (torch.rand(N) < 0.05).float()
            B.append((s, a, d.log_prob(a), v, r, done))
            s = torch.where(done[:, None] > 0, torch.randn(N, 4), s2)
        nv = net(s)[1]
        S, A, L, V, R, D = (torch.stack(z) for z in zip(*B))
        adv, last = torch.zeros(T, N), torch.zeros(N)
        for t in reversed(range(T)):
            nxt = nv if t == T - 1 else V[t + 1]
            last = R[t] + 0.99 * nxt * (1 - D[t]) - V[t] + 0.99 * 0.95 * (1 - D[t]) * last
            adv[t] = last
        ret = (adv + V).flatten()
    S, A, L, adv = S.flatten(0, 1), A.flatten(), L.flatten(), adv.flatten()
    for ep in range(3):
        for i in torch.randperm(N * T).split(32):
            d, v = net(S[i])
            ad = (adv[i] - adv[i].mean()) / (adv[i].std() + 1e-8)
            ra = (d.log_prob(A[i]) - L[i]).exp()
            loss = -torch.min(ra * ad, ra.clamp(0.8, 1.2) * ad).mean() + 0.5 * F.mse_loss(v, ret[i]) - 0.01 * d.entropy().mean()
            opt.zero_grad(); loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            steps += 1
print("steps", steps)
report(net)
