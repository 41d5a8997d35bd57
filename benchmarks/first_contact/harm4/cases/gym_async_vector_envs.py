"""gymnasium's AsyncVectorEnv: environments in child processes, an actor-critic of the script's own, autoreset; an environment that raises."""
# PRELUDE
import gymnasium as gym
import warnings

warnings.filterwarnings("ignore")
gym.logger.min_level = 60


class AC(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pi, self.v = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, x):
        h = self.body(x).tanh()
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h)[..., 0]


class Broken(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, a):
        raise RuntimeError("broken environment")


if __name__ == "__main__":
    envs = gym.vector.AsyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
    m = AC()
    W(m)
    opt = torch.optim.RMSprop(m.parameters(), 1e-3)
    obs, _ = envs.reset(seed=4)
    for u in range(6):
        logs, vals, rews = [], [], []
        for _ in range(10):
            d, v = m(torch.as_tensor(obs, dtype=torch.float32))
            a = d.sample()
            obs, r, term, trunc, _ = envs.step(a.numpy())
            logs.append(d.log_prob(a)), vals.append(v), rews.append(torch.as_tensor(r, dtype=torch.float32))
        ret = torch.stack(rews).flip(0).cumsum(0).flip(0) * 0.1
        adv = ret - torch.stack(vals)
        loss = -(torch.stack(logs) * adv.detach()).mean() + adv.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(u, float(loss.detach()).hex(), H(obs))
    envs.close()
    bad = gym.vector.AsyncVectorEnv([Broken, Broken])
    bad.reset()
    try:
        bad.step(np.array([0, 1]))
    except RuntimeError as e:
        print(type(e).__name__, str(e)[:40])
    bad.close(terminate=True)
    print(M(m), R())
