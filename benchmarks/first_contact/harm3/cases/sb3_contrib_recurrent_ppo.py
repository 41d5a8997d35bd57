"""sb3-contrib's RecurrentPPO (LSTM policy, masked episode starts) on CartPole: weights, random states, a prediction with carried state."""
# PRELUDE
from sb3_contrib import RecurrentPPO

m = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=32, batch_size=16, n_epochs=2, seed=3, device="cpu", policy_kwargs=dict(lstm_hidden_size=16, net_arch=[16]), verbose=0)
m.learn(128)
print(H(dict(m.policy.state_dict())), m.num_timesteps, m._n_updates)
obs = m.get_env().reset()
st, start = None, np.ones((1,), bool)
acts = []
for _ in range(6):
    a, st = m.predict(obs, state=st, episode_start=start, deterministic=False)
    obs, r, start, info = m.get_env().step(a)
    acts.append(int(a[0]))
print(acts, H(list(st)), R())
