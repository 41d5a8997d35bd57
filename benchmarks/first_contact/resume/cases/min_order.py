# optimizer over the same parameters in another order after resuming (set()); or "drop": another dropout, "bf16": weights kept in bf16,
# "queue": a non-persistent buffer lost, "ema": raw weights are lost, the run goes on from the average
import copy, os, sys, torch
from torch import nn
n, F = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
re = os.path.exists("o.pt")
m = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5 if F == "drop" and re else 0.1), nn.Linear(8, 8)); avg = copy.deepcopy(m).requires_grad_(False)
m.register_buffer("queue", torch.zeros(8), persistent=False)
ps = list(m.parameters()); ps = ps[2:] + ps[:2] if F == "order" and re else ps
o, s = torch.optim.AdamW(ps, 1e-2), 0
if re:
    c = torch.load("o.pt"); s = c["s"]
    m.load_state_dict(c["avg" if F == "ema" else "m"]); avg.load_state_dict(c["avg"]); o.load_state_dict(c["o"]); torch.set_rng_state(c["rng"])
for s in range(s + 1, n + 1):
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(s))
    y = m(x) + m.queue; y.square().mean().backward(); o.step(); o.zero_grad(); m.queue += y.detach().mean(0)
    for e, p in zip(avg.parameters(), m.parameters()): e.data.lerp_(p.data, 0.1)
    if s % 5 == 0:
        w = {k: v.bfloat16() if F == "bf16" else v for k, v in m.state_dict().items()}
        torch.save({"s": s, "m": w, "avg": avg.state_dict(), "o": o.state_dict(), "rng": torch.get_rng_state()}, "o.pt")
print("end", s, y.sum().item(), m[0].weight.sum().item())
