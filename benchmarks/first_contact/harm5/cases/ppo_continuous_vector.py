"""CleanRL's continuous PPO: SyncVectorEnv with wrappers that normalise, orthogonal init, logstd parameter, GAE in numpy-like loops, minibatch shuffles by numpy, KL stop, annealed rate."""
# PRELUDE
import gymnasium as gym, warnings
warnings.filterwarnings("ignore")
from torch.distributions.normal import Normal
def mk(i):
    def f():
        e = gym.wrappers.RecordEpisodeStatistics(gym.wrappers.ClipAction(gym.wrappers.NormalizeObservation(gym.make("Pendulum-v1"))))
        e.action_space.seed(i)
        return e
    return f
envs = gym.vector.SyncVectorEnv([mk(i) for i in range(2)])
def li(a, b, std=2 ** 0.5):
    l = nn.Linear(a, b)
    nn.init.orthogonal_(l.weight, std)
    nn.init.constant_(l.bias, 0.0)
    return l
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(li(3, 16), nn.Tanh(), li(16, 1, 1.0))
        self.mean = nn.Sequential(li(3, 16), nn.Tanh(), li(16, 1, 0.01))
        self.logstd = nn.Parameter(torch.zeros(1, 1))
    def get_value(self, x): return self.critic(x)
    def get(self, x, a=None):
        p = Normal(self.mean(x), self.logstd.expand(len(x), 1).exp())
        a = p.sample() if a is None else a
        return a, p.log_prob(a).sum(1), p.entropy().sum(1), self.critic(x)
ag = Agent()
W(ag)
opt = torch.optim.Adam(ag.parameters(), 3e-4, eps=1e-5)
obs = torch.as_tensor(envs.reset(seed=1)[0]).float()
for up in range(3):
    opt.param_groups[0]["lr"] = (1 - up / 3) * 3e-4
    O, A, L, Rw, V = [], [], [], [], []
    for t in range(16):
        with torch.no_grad():
            a, l, _, v = ag.get(obs)
        O.append(obs), A.append(a), L.append(l), V.append(v[:, 0])
        nx, rw, te, tr, inf = envs.step(a.numpy())
        Rw.append(torch.as_tensor(rw).float())
        obs = torch.as_tensor(nx).float()
    with torch.no_grad():
        nv = ag.get_value(obs)[:, 0]
        adv, last = torch.zeros(16, 2), 0
        for t in reversed(range(16)):
            d = Rw[t] + 0.99 * (nv if t == 15 else V[t + 1]) - V[t]
            adv[t] = last = d + 0.99 * 0.95 * last
    O, A, L, V = (torch.stack(z).flatten(0, 1) for z in (O, A, L, V))
    AD = adv.flatten()
    RT = AD + V
    idx = np.arange(32)
    for ep in range(3):
        np.random.shuffle(idx)
        for k in range(0, 32, 8):
            mb = idx[k:k + 8]
            _, nl, en, v = ag.get(O[mb], A[mb])
            lr = nl - L[mb]
            with torch.no_grad():
                kl = ((lr.exp() - 1) - lr).mean()
            ad = (AD[mb] - AD[mb].mean()) / (AD[mb].std() + 1e-8)
            pg = torch.max(-ad * lr.exp(), -ad * lr.exp().clamp(0.8, 1.2)).mean()
            loss = pg - 0.01 * en.mean() + 0.5 * ((v[:, 0] - RT[mb]) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(ag.parameters(), 0.5)
            opt.step()
        if kl > 0.02:
            break
    print(up, float(loss.detach()).hex(), float(kl).hex(), M(ag))
print(R(), H(obs))
