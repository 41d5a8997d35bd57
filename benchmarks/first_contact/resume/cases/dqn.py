# DQN: online and target network, replay buffer (CleanRL style). Faults: target not loaded, replay lost, epsilon again
import hashlib, os, random, sys, torch
from torch import nn
F = sys.argv[sys.argv.index("--fault") + 1] if "--fault" in sys.argv else ""
until = int(sys.argv[sys.argv.index("--until") + 1]) if "--until" in sys.argv else 80
torch.manual_seed(0); random.seed(0)
Q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)); T = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)); T.load_state_dict(Q.state_dict())
opt = torch.optim.Adam(Q.parameters(), lr=1e-3); mem, s, step = [], torch.zeros(4), 0
if os.path.exists("last.pt"):
    c = torch.load("last.pt", weights_only=False); Q.load_state_dict(c["Q"]); opt.load_state_dict(c["opt"]); step, s = c["step"], c["s"]
    T.load_state_dict(c["Q"] if F == "target_is_online" else c["T"])
    if F != "replay_lost": mem = c["mem"]
    torch.set_rng_state(c["rng"]); random.setstate(c["pyrng"])
while step < until:
    eps = max(0.05, 1 - step / 50)
    while True:
        with torch.no_grad(): act = random.randrange(2) if random.random() < eps else Q(s).argmax().item()
        s2 = (0.9 * s + 0.1 * (2 * act - 1) + 0.05 * torch.randn(4)); mem.append((s, act, -s2.abs().sum(), s2)); s = s2
        if len(mem) >= 16: break
    b = random.sample(mem, 16); S, A, R, N = torch.stack([x[0] for x in b]), torch.tensor([x[1] for x in b]), torch.stack([x[2] for x in b]), torch.stack([x[3] for x in b])
    with torch.no_grad(): y = R + 0.9 * T(N).max(1).values
    loss = nn.functional.mse_loss(Q(S).gather(1, A[:, None])[:, 0], y); opt.zero_grad(); loss.backward(); opt.step(); step += 1
    if step % 15 == 7: T.load_state_dict(Q.state_dict())
    if step % 10 == 0: torch.save({"Q": Q.state_dict(), "T": T.state_dict(), "opt": opt.state_dict(), "mem": mem, "s": s, "step": step, "rng": torch.get_rng_state(), "pyrng": random.getstate()}, "last.pt")
print("end", step, loss.item(), hashlib.sha256(b"".join(v.numpy().tobytes() for v in Q.state_dict().values())).hexdigest()[:10])
