"""A generator of batches with its own shuffle, augmentation by random, dropout; resumes in the middle of an epoch. --lose place | shuffle | python | torch | numpy | weight-ema-dict | beta"""
import hashlib, os, random, sys

import numpy as np
import torch
from torch import nn

lose = sys.argv[sys.argv.index("--lose") + 1] if "--lose" in sys.argv else ""
END = int(os.environ.get("END", "100"))
random.seed(11), np.random.seed(11), torch.manual_seed(11)
DATA = torch.randn(48, 6, generator=torch.Generator().manual_seed(5))


class Stream:
    """Epochs of 12 batches of 4; its order comes from a generator of its own."""

    def __init__(self):
        self.rng = random.Random(7)
        self.order, self.at, self.epoch = [], 0, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= len(self.order):
            self.order = list(range(48))
            self.rng.shuffle(self.order)
            self.at, self.epoch = 0, self.epoch + 1
        rows = self.order[self.at:self.at + 4]
        self.at += 4
        x = DATA[rows]
        if random.random() < 0.5:
            x = x.flip(1)
        return x + 0.1 * torch.from_numpy(np.random.randn(4, 6)).float()

    def state(self):
        return {"rng": self.rng.getstate(), "order": self.order, "at": self.at, "epoch": self.epoch}

    def back(self, s):
        if lose == "place":
            return
        if lose == "shuffle":  # skips as many batches, in a new order
            for _ in range(s["at"] // 4):
                next(self)
            self.rng.seed(99)
            self.order = self.rng.sample(range(48), 48)
            return
        self.rng.setstate(s["rng"])
        self.order, self.at, self.epoch = s["order"], s["at"], s["epoch"]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.drop = nn.Linear(6, 8), nn.Linear(4, 6), nn.Dropout(0.1)

    def forward(self, x):
        mean, log = self.enc(self.drop(x)).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (log / 2).exp()
        return self.dec(z), (mean.square() + log.exp() - log - 1).mean()


vae, stream = VAE(), Stream()
shadow = {k: v.clone() for k, v in vae.state_dict().items()}
opt = torch.optim.RMSprop(vae.parameters(), lr=0.01, momentum=0.9)
step, beta = 0, 0.0
if os.path.isfile("vae.bin"):
    s = torch.load("vae.bin", weights_only=False)
    vae.load_state_dict(s["vae"])
    opt.load_state_dict(s["opt"])
    stream.back(s["stream"])
    step = s["step"]
    if lose != "weight-ema-dict":
        shadow = s["shadow"]
    if lose != "beta":
        beta = s["beta"]
    if lose != "python":
        random.setstate(s["python"])
    if lose != "numpy":
        np.random.set_state(s["numpy"])
    if lose != "torch":
        torch.set_rng_state(s["torch"])
for x in stream:
    y, kl = vae(x)
    loss = (y - x).square().mean() + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    beta = min(1.0, beta + 0.05)
    for k, v in vae.state_dict().items():
        shadow[k].lerp_(v, 0.05)
    step += 1
    sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in vae.parameters())).hexdigest()[:10]
    print(f"r0 step {step} loss {loss.item():.7f} {sha} shadow {float(sum(v.sum() for v in shadow.values())):.6f}", flush=True)
    if step % 5 == 0:
        torch.save({"vae": vae.state_dict(), "opt": opt.state_dict(), "stream": stream.state(), "step": step, "shadow": shadow, "beta": beta,
                    "python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}, "vae.bin")
    if step >= END:
        break
