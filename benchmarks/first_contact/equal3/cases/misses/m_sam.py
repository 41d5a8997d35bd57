"""Sharpness-aware steps (two passes, weights moved and moved back), resumed exactly. --plain: without the move. --thread: saved by a thread, without the move."""
import os, sys, threading

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
n = 0
if os.path.exists("sam.pt"):
    c = torch.load("sam.pt")
    model.load_state_dict(c["model"]), opt.load_state_dict(c["opt"])
    n = c["n"]
while n < 50:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(n))
    loss = (model(x) - 1).square().mean()
    loss.backward()
    if "--plain" not in sys.argv and "--thread" not in sys.argv:
        with torch.no_grad():
            moves = [0.05 * p.grad / p.grad.norm() for p in model.parameters()]
            for p, d in zip(model.parameters(), moves):
                p.add_(d)
        opt.zero_grad()
        (model(x) - 1).square().mean().backward()
        with torch.no_grad():
            for p, d in zip(model.parameters(), moves):
                p.sub_(d)
    opt.step()
    opt.zero_grad()
    n += 1
    print(n, f"{loss.item():.9f} {sum(p.detach().double().sum().item() for p in model.parameters()):.12f}", flush=True)
    if n % 5 == 0:
        held = {"model": {k: v.clone() for k, v in model.state_dict().items()}, "opt": __import__("copy").deepcopy(opt.state_dict()), "n": n}
        if "--thread" in sys.argv:
            t = threading.Thread(target=torch.save, args=(held, "sam.pt"))
            t.start(), t.join()
        else:
            torch.save(held, "sam.pt")
