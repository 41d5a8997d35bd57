"""stable-baselines3: PPO and DQN on a small environment of one's own, with VecNormalize and a target_kl; saved zip read back; explained variance of nan."""
# PRELUDE
import warnings, io, zipfile
warnings.filterwarnings("ignore")
import gymnasium as gym
from stable_baselines3 import PPO, DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
seed(56)


class Env(gym.Env):
    observation_space = gym.spaces.Box(-5, 5, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s, self.t = self.np_random.normal(size=3).astype(np.float32), 0
        return self.s, {}

    def step(self, a):
        self.t += 1
        self.s = (0.8 * self.s + 0.3 * self.np_random.normal(size=3) + (a - 1) * 0.1).astype(np.float32).clip(-5, 5)
        return self.s, 0.0 if self.t < 3 else -float(abs(self.s[0])), self.t >= 10, False, {}


env = VecNormalize(DummyVecEnv([Env, Env]))
m = PPO("MlpPolicy", env, n_steps=32, batch_size=16, n_epochs=3, target_kl=0.05, seed=1, device="cpu", policy_kwargs={"net_arch": [16]})
watch(m.policy)
m.learn(192)
print({k: dig(v) for k, v in sorted(m.logger.name_to_value.items()) if "time" not in k and "fps" not in k})
print(dig(dict(m.policy.state_dict())), dig(m.policy.optimizer.state_dict()["state"]))
b = io.BytesIO(); m.save(b)
z = zipfile.ZipFile(b)
print([(n, dig(z.read(n))) for n in z.namelist() if n.endswith(".pth")])
d = DQN("MlpPolicy", Env(), learning_starts=20, buffer_size=200, train_freq=2, target_update_interval=20, seed=2, device="cpu", policy_kwargs={"net_arch": [16]})
watch(d.policy)
d.learn(150)
print(dig(dict(d.policy.state_dict())))
env.close()
print(rngs())
