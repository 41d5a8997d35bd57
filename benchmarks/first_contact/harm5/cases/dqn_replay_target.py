"""CleanRL's DQN: epsilon-greedy by random.random, replay buffer with numpy, target network updated by load and by polyak, double Q, periodic evaluation and model save."""
# PRELUDE
import gymnasium as gym
from collections import deque
env = gym.make("CartPole-v1")
q, tgt = net(1, 4, 24, 2), net(2, 4, 24, 2)
tgt.load_state_dict(q.state_dict())
W(q)
opt = torch.optim.Adam(q.parameters(), 1e-3)
env.action_space.seed(1)
buf = deque(maxlen=300)
obs, _ = env.reset(seed=1)
for t in range(400):
    if random.random() < max(0.05, 1 - t / 200):
        a = int(env.action_space.sample())
    else:
        with torch.no_grad():
            a = int(q(torch.as_tensor(obs)[None]).argmax(1))
    nxt, rew, term, trunc, _ = env.step(a)
    buf.append((obs, a, rew, nxt, term))
    obs = nxt
    if term or trunc:
        obs, _ = env.reset()
    if t > 60 and t % 4 == 0:
        s, ac, rw, n, d = map(np.array, zip(*random.sample(buf, 32)))
        with torch.no_grad():
            best = q(torch.as_tensor(n)).argmax(1, keepdim=True)
            y = torch.as_tensor(rw).float() + 0.99 * tgt(torch.as_tensor(n)).gather(1, best)[:, 0] * (1 - torch.as_tensor(d).float())
        loss = F.smooth_l1_loss(q(torch.as_tensor(s)).gather(1, torch.as_tensor(ac)[:, None])[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        for a_, b_ in zip(tgt.parameters(), q.parameters()):
            a_.data.copy_(0.1 * b_.data + 0.9 * a_.data)
    if t % 100 == 99:
        print(t, float(loss.detach()).hex(), M(q), M(tgt))
torch.save(q.state_dict(), "dqn.pt")
print(R(), H(obs))
