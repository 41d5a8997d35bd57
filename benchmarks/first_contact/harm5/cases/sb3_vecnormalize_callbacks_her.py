"""SB3: DQN with VecNormalize, EvalCallback, CheckpointCallback and StopTraining, saved and loaded, replay buffer pickled; DDPG with HER on the bit-flipping environment."""
# PRELUDE
import warnings
warnings.filterwarnings("ignore")
from stable_baselines3 import DQN, DDPG, HerReplayBuffer
from stable_baselines3.common.callbacks import EvalCallback, CheckpointCallback, StopTrainingOnMaxEpisodes, CallbackList
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.monitor import Monitor
import gymnasium as gym
ve = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
ev = VecNormalize(DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1"))]), training=False)
a = DQN("MlpPolicy", ve, learning_starts=50, buffer_size=500, target_update_interval=40, policy_kwargs={"net_arch": [16]}, seed=1)
W(a.policy)
a.learn(300, callback=CallbackList([EvalCallback(ev, eval_freq=100, n_eval_episodes=2, best_model_save_path="best", verbose=0), CheckpointCallback(150, "ck", save_replay_buffer=False), StopTrainingOnMaxEpisodes(40)]))
print(H(dict(a.policy.state_dict())), a.num_timesteps, sorted(os.listdir("ck")), sorted(os.listdir("best")))
a.save("dqn")
a.save_replay_buffer("rb")
b = DQN.load("dqn", env=ve)
b.load_replay_buffer("rb")
W(b.policy)
b.learn(100, reset_num_timesteps=False)
print(H(dict(b.policy.state_dict())), b.replay_buffer.size(), H(ve.obs_rms.mean))
h = DDPG("MultiInputPolicy", BitFlippingEnv(n_bits=3, continuous=True, max_steps=3), replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=dict(n_sampled_goal=2, goal_selection_strategy="future"), learning_starts=20, policy_kwargs={"net_arch": [16]}, seed=1)
W(h.policy)
h.learn(90)
print(H(dict(h.policy.state_dict())), R())
import shutil
for f in ("ck", "best"):
    shutil.rmtree(f)
os.remove("dqn.zip"), os.remove("rb.pkl")
