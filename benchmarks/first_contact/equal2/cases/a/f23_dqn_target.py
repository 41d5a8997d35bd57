# DLR-RM style DQN: at the resume the target network is made from the online one (source: google/brax#655, Denys88/rl_games#356)
import hashlib, os, sys
import torch
from torch import nn
class QNet(nn.Sequential):
    def __init__(self): super().__init__(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
class DQN:
    def __init__(self):
        torch.manual_seed(23); self.q, self.q_target = QNet(), QNet(); self.q_target.load_state_dict(self.q.state_dict()); self.optimizer = torch.optim.RMSprop(self.q.parameters(), 1e-3); self.steps = 0
    def save(self, path): torch.save({k: (v.state_dict() if hasattr(v, "state_dict") else v) for k, v in vars(self).items()}, path)
    def load(self, path, fault):
        c = torch.load(path); self.q.load_state_dict(c["q"]); self.optimizer.load_state_dict(c["optimizer"]); self.steps = c["steps"]; self.q_target.load_state_dict(c["q"] if fault else c["q_target"])
    def learn(self, stop):
        while self.steps < stop:
            g = torch.Generator().manual_seed(self.steps); s, s2, r, a = torch.randn(16, 4, generator=g), torch.randn(16, 4, generator=g), torch.randn(16, generator=g), torch.randint(0, 2, (16, 1), generator=g)
            with torch.no_grad(): y = r + 0.98 * self.q_target(s2).amax(1)
            loss = nn.functional.smooth_l1_loss(self.q(s).gather(1, a)[:, 0], y); self.optimizer.zero_grad(); loss.backward(); self.optimizer.step(); self.steps += 1
            if self.steps % 8 == 0: self.q_target.load_state_dict(self.q.state_dict())
            print(self.steps, repr(loss.item()), flush=True)
            if self.steps % 5 == 0: self.save("dqn.zip")
if __name__ == "__main__":
    agent = DQN()
    if os.path.exists("dqn.zip"): agent.load("dqn.zip", "--fault" in sys.argv)
    agent.learn(int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000)
    print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (agent.q, agent.q_target) for p in m.parameters())).hexdigest()[:16])
