"""PPO of stable-baselines3 on CartPole and DQN for some steps, saved as zip; rollouts depend on every generator.

source: vwxyzjn/cleanrl style loops; DLR-RM/stable-baselines3 docs
meta: {"limit": 120, "ignore": ["*.zip"], "compare": ["status", "stdout", "files", "stderr", "left"]}
"""
import warnings
warnings.simplefilter("ignore")
import gymnasium as gym
import torch
from stable_baselines3 import DQN, PPO
from fcw import rng, say, seed, sha, watch

seed(309)
ppo = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=3, device="cpu")
watch(ppo.policy)
ppo.learn(256)
ppo.save("ppo")
say(sha([v for v in ppo.policy.state_dict().values()]), ppo.num_timesteps)
dqn = DQN("MlpPolicy", "CartPole-v1", learning_starts=50, batch_size=16, train_freq=2, target_update_interval=40, seed=4, device="cpu")
watch(dqn.q_net)
dqn.learn(200)
say(sha(list(dqn.q_net.state_dict().values()), list(dqn.q_net_target.state_dict().values())))
env = gym.make("CartPole-v1")
obs, _ = env.reset(seed=5)
say([int(PPO.load("ppo", device="cpu").predict(obs, deterministic=True)[0]) for _ in range(3)], rng())
