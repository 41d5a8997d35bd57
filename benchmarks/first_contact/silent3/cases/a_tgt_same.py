"""policy_net = model.to(device); target_net = model.to(device): both names are one network, so the target moves with each step.
Source: https://github.com/datawhalechina/easy-rl/issues/140
Truth: target_net is policy_net.
Could a tool know: partly: a model is called with and without gradients in the same step on other data, and load_state_dict gives it its own tensors.
"""
import sys
import copy
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class DuelingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.h, self.a, self.v = nn.Linear(6, 32), nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, s):
        h = torch.relu(self.h(s))
        a = self.a(h)
        return self.v(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, model):
        self.policy_net = model.to("cpu")
        self.target_net = copy.deepcopy(model).to("cpu") if HEALTHY else model.to("cpu")
        self.opt = torch.optim.Adam(self.policy_net.parameters(), lr=1e-3)

    def update(self, s, a, r, s2, done):
        q = self.policy_net(s).gather(1, a)
        with torch.no_grad():
            nxt = self.target_net(s2).max(1, keepdim=True)[0]
        loss = nn.functional.mse_loss(q, r + 0.9 * nxt * (1 - done))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


agent = Agent(DuelingNet())
W = torch.randn(6, 4)
for step in range(200):
    s, a = torch.randn(64, 6), torch.randint(0, 4, (64, 1))
    r = (s @ W).tanh().gather(1, a)
    loss = agent.update(s, a, r, 0.5 * s + 0.3 * torch.randn(64, 6), (torch.rand(64, 1) < 0.1).float())
    if step % 20 == 19:
        agent.target_net.load_state_dict(agent.policy_net.state_dict())
print(f"loss {loss:.4f} one object: {agent.target_net is agent.policy_net}")
