"""pytorch/examples' REINFORCE: episodes of different length, saved log probabilities on the policy object itself, one backward over many forwards, cleared lists."""
# PRELUDE
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.dropout, self.affine2 = nn.Linear(4, 16), nn.Dropout(p=0.6), nn.Linear(16, 2)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=1)


class Walk:
    def reset(self):
        self.s, self.t = np.random.randn(4).astype(np.float32), 0
        return self.s

    def step(self, a):
        self.t += 1
        self.s = (0.9 * self.s + (0.3 if a else -0.3) + 0.1 * np.random.randn(4)).astype(np.float32)
        return self.s, float(-np.abs(self.s).mean()), bool(np.abs(self.s).max() > 2 or self.t > 40)


policy = Policy()
W(policy)
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
env = Walk()
eps = np.finfo(np.float32).eps.item()
for episode in range(8):
    state = env.reset()
    while True:
        m = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
        action = m.sample()
        policy.saved_log_probs.append(m.log_prob(action))
        state, r, done = env.step(action.item())
        policy.rewards.append(r)
        if done:
            break
    R_, returns = 0, []
    for r in policy.rewards[::-1]:
        R_ = r + 0.99 * R_
        returns.insert(0, R_)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std(correlation=0) + eps) if False else (returns - returns.mean()) / (returns.std(unbiased=False) + eps)
    loss = torch.cat([-l * g for l, g in zip(policy.saved_log_probs, returns)]).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(episode, len(policy.rewards), float(loss.detach()).hex(), H(state))
    del policy.rewards[:], policy.saved_log_probs[:]
print(M(policy), R())
