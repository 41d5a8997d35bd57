"""sb3-contrib: QR-DQN and TQC (quantile losses, target networks, truncated sorted quantiles), ARS (weights changed without any gradient): weights and replay buffers."""
# PRELUDE
from sb3_contrib import ARS, QRDQN, TQC

m = QRDQN("MlpPolicy", "CartPole-v1", learning_starts=30, train_freq=4, batch_size=8, buffer_size=200, target_update_interval=20, seed=1, device="cpu", policy_kwargs=dict(net_arch=[12], n_quantiles=7))
m.learn(120)
print("qrdqn", H(dict(m.policy.state_dict())), H(m.replay_buffer.observations[:100]), m._n_updates)
m = TQC("MlpPolicy", "Pendulum-v1", learning_starts=30, batch_size=8, buffer_size=200, seed=2, device="cpu", policy_kwargs=dict(net_arch=[12], n_quantiles=5, n_critics=2))
m.learn(70)
print("tqc", H(dict(m.policy.state_dict())), float(m.log_ent_coef.detach()).hex(), m._n_updates)
m = ARS("LinearPolicy", "Pendulum-v1", n_delta=2, seed=3, device="cpu")
m.learn(1700)
print("ars", H(dict(m.policy.state_dict())), m.num_timesteps)
print(R())
