# an exact resume of two optimizers that take turns is refused: the actor is called in its own turn, and without gradients in the critic's: numscope parity --resume 4 -- python exact_actor_critic.py
import os, torch
from torch import nn
torch.manual_seed(0); actor, critic = nn.Linear(3, 1), nn.Linear(4, 1); co, ao = torch.optim.Adam(critic.parameters(), 1e-2), torch.optim.Adam(actor.parameters(), 1e-2); n = 0
if os.path.exists("c.pt"):
    saved = torch.load("c.pt"); n = saved["n"]; [m.load_state_dict(s) for m, s in zip((actor, critic, co, ao), saved["s"])]
while n < 100:
    g = torch.Generator().manual_seed(n); s, a, r = torch.randn(8, 3, generator=g), torch.randn(8, 1, generator=g), torch.randn(8, 1, generator=g)
    g2 = torch.randn(8, 1, generator=g)
    with torch.no_grad(): r = r + 0.9 * critic(torch.cat([s, actor(s)], 1))
    cl = (critic(torch.cat([s, a], 1)) - r).square().mean(); co.zero_grad(); cl.backward(); co.step()
    al = -critic(torch.cat([s, actor(s)], 1)).mean(); ao.zero_grad(); al.backward(); ao.step()
    n += 1; print(n, repr(cl.item()), repr(al.item()), flush=True)
    if n % 5 == 0: torch.save({"s": [m.state_dict() for m in (actor, critic, co, ao)], "n": n}, "c.pt")
