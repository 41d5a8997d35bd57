"""PPO of stable-baselines3 on CartPole, 512 steps; weights, random states, the monitor's file without times.

Source: https://github.com/DLR-RM/stable-baselines3 (PPO example)
"""
# PRELUDE
import gymnasium as gym
from stable_baselines3 import PPO
m = PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=128, batch_size=32, n_epochs=2, seed=3, device="cpu", policy_kwargs=dict(net_arch=[16]))
m.learn(384)
print(M(m.policy), R())
print(m.predict(np.zeros(4, dtype=np.float32), deterministic=True)[0])
