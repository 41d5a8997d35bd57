"""SAC of stable-baselines3 (three optimizers, target network, entropy coefficient as a bare parameter).

Source: https://github.com/DLR-RM/stable-baselines3 (SAC example)
"""
# PRELUDE
import gymnasium as gym
from stable_baselines3 import SAC
m = SAC("MlpPolicy", gym.make("Pendulum-v1"), learning_starts=30, batch_size=16, seed=3, device="cpu", policy_kwargs=dict(net_arch=[16]), buffer_size=500)
m.learn(90)
print(M(m.policy), H(m.log_ent_coef), R())
