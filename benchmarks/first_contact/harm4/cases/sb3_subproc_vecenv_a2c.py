"""stable-baselines3: A2C on SubprocVecEnv (forkserver), TD3 with HER-like replay off, saved parameters and a callback that stops."""
# PRELUDE
import gymnasium as gym
from stable_baselines3 import A2C, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv


class Stop(BaseCallback):
    def _on_step(self):
        return self.n_calls < 12


def make():
    return gym.make("CartPole-v1")


if __name__ == "__main__":
    for method in ("fork", "spawn"):
        env = SubprocVecEnv([make, make], start_method=method)
        a = A2C("MlpPolicy", env, seed=3, n_steps=5, policy_kwargs=dict(net_arch=[8]), device="cpu")
        W(a.policy)
        a.learn(60, callback=Stop())
        print(method, H(dict(a.policy.state_dict())), a.num_timesteps)
        env.close()
    t = TD3("MlpPolicy", "Pendulum-v1", seed=1, learning_starts=20, batch_size=8, policy_kwargs=dict(net_arch=[8]), device="cpu", train_freq=4)
    W(t.policy)
    t.learn(60)
    t.save("td3")
    u = TD3.load("td3", device="cpu")
    print(H(dict(t.policy.state_dict())) == H(dict(u.policy.state_dict())), H(dict(t.policy.state_dict())), sorted(t.get_parameters()))
    os.remove("td3.zip")
    print(R())
