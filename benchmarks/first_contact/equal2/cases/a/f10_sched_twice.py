# THUDM/slime#1547: the scheduler's state is loaded, and then stepped forward by the number of iterations once more
import hashlib, json, os, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
def build():
    torch.manual_seed(10); m = nn.GRU(6, 16, batch_first=True); h = nn.Linear(16, 6); o = torch.optim.AdamW([*m.parameters(), *h.parameters()], lr=5e-3)
    s = torch.optim.lr_scheduler.SequentialLR(o, [torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=4), torch.optim.lr_scheduler.ExponentialLR(o, 0.95)], [4]); return m, h, o, s
def load(m, h, o, s):
    if not os.path.exists("latest_checkpointed_iteration.txt"): return 0
    it = int(open("latest_checkpointed_iteration.txt").read()); c = torch.load(f"iter_{it:07d}/rank.pt")
    for a, b in zip((m, h, o, s), c["state"]): a.load_state_dict(b)
    if fault:
        for _ in range(it): s.step()
    return it
m, h, o, s = build(); it = load(m, h, o, s)
while it < stop:
    x = torch.randn(8, 10, 6, generator=torch.Generator().manual_seed(it)); loss = (h(m(x)[0]) - x.roll(1, 1)).pow(2).mean(); loss.backward(); o.step(); o.zero_grad(); s.step(); it += 1
    print(it, repr(loss.item()), flush=True)
    if it % 5 == 0:
        os.makedirs(f"iter_{it:07d}", exist_ok=True); torch.save({"state": [q.state_dict() for q in (m, h, o, s)]}, f"iter_{it:07d}/rank.pt"); open("latest_checkpointed_iteration.txt", "w").write(str(it))
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for q in (m, h) for p in q.parameters())).hexdigest()[:16])
