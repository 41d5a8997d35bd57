"""Two networks and a queue: a deep Q-network with target network, replay, exploration by numpy; safetensors and a pickle. --lose target | replay | opt | epsilon"""
import collections, hashlib, os, pickle, sys

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import nn

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END = int(os.environ.get("END", "100"))
torch.manual_seed(2)
q = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 3))
target = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 3))
target.load_state_dict(q.state_dict())
opt = torch.optim.AdamW(q.parameters(), lr=0.01, amsgrad=True)
replay, rng, t, eps, obs = collections.deque(maxlen=200), np.random.default_rng(4), 0, 1.0, np.zeros(5)


def world(o, a):
    o = np.clip(0.9 * o + 0.3 * (a - 1) + 0.2 * rng.normal(size=5), -2, 2)
    return o, -float(np.abs(o).sum())


if os.path.exists("q.safetensors"):
    load_model(q, "q.safetensors")
    if lose == "target":
        target.load_state_dict(q.state_dict())
    else:
        load_model(target, "target.safetensors")
    with open("rest.pkl", "rb") as f:
        rest = pickle.load(f)
    t, obs = rest["t"], rest["obs"]
    rng.bit_generator.state = rest["rng"]
    if lose != "epsilon":
        eps = rest["eps"]
    if lose != "replay":
        replay.extend(rest["replay"])
    if lose != "opt":
        opt.load_state_dict(torch.load("opt.pt"))
while t < END:
    while True:
        explore = rng.random() < eps
        a = int(rng.integers(3)) if explore else int(q(torch.tensor(obs, dtype=torch.float32)).argmax())
        new, reward = world(obs, a)
        replay.append((obs, a, reward, new))
        obs = new
        if len(replay) >= 16:
            break
    pick = rng.integers(len(replay), size=16)
    o, a, r, n = zip(*(replay[i] for i in pick))
    o, n, r = (torch.tensor(np.array(v), dtype=torch.float32) for v in (o, n, r))
    with torch.no_grad():
        want = r + 0.9 * target(n).max(1).values
    loss = nn.functional.smooth_l1_loss(q(o).gather(1, torch.tensor(a)[:, None])[:, 0], want)
    opt.zero_grad()
    loss.backward()
    opt.step()
    eps = max(0.1, eps * 0.9)
    t += 1
    if t % 8 == 0:
        target.load_state_dict(q.state_dict())
    sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in q.parameters())).hexdigest()[:10]
    print(f"r0 step {t} loss {loss.item():.7f} {sha}", flush=True)
    if t % 6 == 0:
        save_model(q, "q.safetensors")
        save_model(target, "target.safetensors")
        torch.save(opt.state_dict(), "opt.pt")
        with open("rest.pkl", "wb") as f:
            pickle.dump({"t": t, "obs": obs, "eps": eps, "rng": rng.bit_generator.state, "replay": list(replay)}, f)
