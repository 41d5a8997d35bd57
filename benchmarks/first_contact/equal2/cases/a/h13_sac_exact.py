# exact: SAC's parts by a loop over names, with replay buffer; two optimizers, target
import copy, hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class Agent:
    def __init__(self):
        torch.manual_seed(13); self.actor = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 1), nn.Tanh()); self.critic = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 1)); self.target = copy.deepcopy(self.critic)
        self.ao = torch.optim.Adam(self.actor.parameters(), 1e-3); self.co = torch.optim.Adam(self.critic.parameters(), 1e-3); self.buffer = torch.zeros(0, 8); self.n = 0
    def update(self):
        self.buffer = torch.cat([self.buffer, torch.randn(16, 8)])[-200:]; b = self.buffer[torch.randint(len(self.buffer), (16,))]; s, a, r, s2 = b[:, :3], b[:, 3:4].tanh(), b[:, 4:5], b[:, 5:]
        with torch.no_grad(): y = r + 0.9 * self.target(torch.cat([s2, self.actor(s2)], 1))
        cl = (self.critic(torch.cat([s, a], 1)) - y).square().mean(); self.co.zero_grad(); cl.backward(); self.co.step(); al = None
        if self.n % 2: al = -self.critic(torch.cat([s, self.actor(s)], 1)).mean(); self.ao.zero_grad(); al.backward(); self.ao.step()
        [p.data.lerp_(q.data, 0.05) for p, q in zip(self.target.parameters(), self.critic.parameters())]; self.n += 1; print(self.n, repr(cl.item()), al and repr(al.item()), flush=True)
agent = Agent(); parts = ["actor", "critic", "target", "ao", "co"]
if os.path.exists("agent.pt"):
    c = torch.load("agent.pt"); [getattr(agent, k).load_state_dict(c[k]) for k in parts]; agent.buffer, agent.n = c["buffer"], c["n"]; torch.set_rng_state(c["rng"])
while agent.n < stop:
    agent.update()
    if agent.n % 5 == 0: torch.save({**{k: getattr(agent, k).state_dict() for k in parts}, "buffer": agent.buffer, "n": agent.n, "rng": torch.get_rng_state()}, "agent.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (agent.actor, agent.critic, agent.target) for p in m.parameters())).hexdigest()[:16])
