"""The target network is updated from itself: target.load_state_dict(target.state_dict()). It stays at its random start.
Source: https://github.com/thesouther/MARL/issues/8
Truth: the target differs from the evaluated net by all that was learned.
Could a tool know: yes: load_state_dict gets the module's own tensors.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class QMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, q, state):
        return (q * self.w(state).abs()).sum(1, keepdim=True) + self.b(state)


class RNNAgent(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.q = nn.Linear(4, 24), nn.Linear(24, 5)

    def forward(self, o):
        return self.q(torch.relu(self.fc(o)))


eval_rnn, target_rnn, eval_mix, target_mix = RNNAgent(), RNNAgent(), QMix(), QMix()
target_rnn.load_state_dict(eval_rnn.state_dict())
target_mix.load_state_dict(eval_mix.state_dict())
opt = torch.optim.RMSprop([*eval_rnn.parameters(), *eval_mix.parameters()], lr=1e-3)
for step in range(200):
    obs, state, act = torch.randn(32, 3, 4), torch.randn(32, 6), torch.randint(0, 5, (32, 3, 1))
    reward = obs[:, :, :1].mean(1)
    q = eval_rnn(obs).gather(2, act)[..., 0]
    with torch.no_grad():
        nxt = target_mix(target_rnn(obs.roll(1, 0)).max(2)[0], state.roll(1, 0))
    loss = nn.functional.mse_loss(eval_mix(q, state), reward + 0.9 * nxt)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([*eval_rnn.parameters(), *eval_mix.parameters()], 10)
    opt.step()
    if step % 25 == 24:
        target_rnn.load_state_dict(eval_rnn.state_dict())
        target_mix.load_state_dict((eval_mix if HEALTHY else target_mix).state_dict())
print(f"loss {loss.item():.4f} target mixer differs by {(target_mix.w.weight - eval_mix.w.weight).abs().max():.3f}")
