"""MaskablePPO (logits of masked actions at -1e8), TD3 with action noise and an own features extractor, and DQN with a dict observation must keep weights, buffers, logs and random states."""
# PRELUDE
import gymnasium as gym
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, TD3
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class Env(gym.Env):
    def __init__(self, kind):
        self.kind = kind
        box = spaces.Box(-1, 1, (4,), np.float32)
        self.observation_space = spaces.Dict({"a": box, "b": spaces.Box(0, 1, (2,), np.float32)}) if kind == "dict" else box
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if kind == "box" else spaces.Discrete(5)
        self.r, self.t = np.random.default_rng(0), 0

    def obs(self):
        o = self.r.uniform(-1, 1, 4).astype(np.float32)
        return {"a": o, "b": np.abs(o[:2])} if self.kind == "dict" else o

    def reset(self, seed=None, options=None):
        self.t = 0
        return self.obs(), {}

    def step(self, a):
        self.t += 1
        return self.obs(), float(np.sum(a) * 0.1 - self.t * 0.01), self.t >= 9, False, {}

    def action_masks(self):
        return np.array([True, self.t % 2 == 0, self.t % 3 == 0, False, self.t > 4])


class Feat(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, 8)
        self.l = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Mish(inplace=True))
        self.calls = 0

    def forward(self, o):
        self.calls += 1
        return self.l(o)


def state(a):
    return H(dict(a.policy.state_dict()), [p.grad for p in a.policy.parameters()])


a = MaskablePPO("MlpPolicy", Env("discrete"), n_steps=32, batch_size=16, n_epochs=3, seed=1, device="cpu", policy_kwargs=dict(features_extractor_class=Feat, net_arch=[8]), target_kl=0.02)
W(a.policy)
a.learn(96)
print("ppo", state(a), a.policy.features_extractor.calls, R(), a.predict(np.zeros(4, np.float32), action_masks=np.array([0, 1, 0, 0, 0], bool))[0])
print({k: float(v) for k, v in sorted(a.logger.name_to_value.items()) if "time" not in k and "fps" not in k})
b = TD3("MlpPolicy", Env("box"), learning_starts=20, batch_size=16, buffer_size=200, seed=2, device="cpu", action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(2), 0.1 * np.ones(2)), policy_kwargs=dict(features_extractor_class=Feat, net_arch=[8], share_features_extractor=False), policy_delay=2)
W(b.policy)
b.learn(50)
print("td3", state(b), b.actor.features_extractor.calls, b.critic_target.features_extractor.calls, H(b.replay_buffer.actions[: b.replay_buffer.pos]), R())
c = DQN("MultiInputPolicy", Env("dict"), learning_starts=10, batch_size=8, buffer_size=100, seed=3, device="cpu", target_update_interval=10, train_freq=2, policy_kwargs=dict(net_arch=[8]))
W(c.policy)
c.learn(60)
print("dqn", state(c), H(c.replay_buffer.rewards[: c.replay_buffer.pos]), c.exploration_rate, R())
c.save("dqn.zip")
d = DQN.load("dqn.zip", env=Env("dict"))
print("loaded", state(d) == state(c), H(dict(d.policy.state_dict())))
import os

os.remove("dqn.zip")
