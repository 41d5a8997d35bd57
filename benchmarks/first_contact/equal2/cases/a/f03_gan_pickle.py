# NVlabs/stylegan2-ada-pytorch#108: snapshots hold G, D, G_ema as pickled modules; Adam of neither is in them
import copy, glob, hashlib, os, pickle, sys
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 8)); D = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
G_ema = copy.deepcopy(G).eval(); cur = 0; rest = None
snaps = sorted(glob.glob("network-snapshot-*.pkl"))
if snaps:
    with open(snaps[-1], "rb") as f: snap = torch.load(f, weights_only=False)
    for name, module in [("G", G), ("D", D), ("G_ema", G_ema)]:
        for a, b in zip(module.parameters(), snap[name].parameters()): a.data.copy_(b.data)
    cur = snap["cur"]; rest = snap["rest"]
opt_g = torch.optim.Adam(G.parameters(), 2e-3, betas=(0.0, 0.99)); opt_d = torch.optim.Adam(D.parameters(), 2e-3, betas=(0.0, 0.99))
if rest and not fault: opt_g.load_state_dict(rest[0]); opt_d.load_state_dict(rest[1])
softplus = nn.functional.softplus
while cur < stop:
    g = torch.Generator().manual_seed(cur)
    z, real = torch.randn(16, 4, generator=g), torch.randn(16, 8, generator=g).tanh()
    D.requires_grad_(False); opt_g.zero_grad(); lg = softplus(-D(G(z))).mean(); lg.backward(); opt_g.step(); D.requires_grad_(True)
    opt_d.zero_grad(); ld = softplus(D(G(z).detach())).mean() + softplus(-D(real)).mean(); ld.backward(); opt_d.step()
    with torch.no_grad():
        for a, b in zip(G_ema.parameters(), G.parameters()): a.copy_(b.lerp(a, 0.9))
    cur += 1; print(cur, repr(lg.item()), repr(ld.item()), flush=True)
    if cur % 5 == 0:
        with open(f"network-snapshot-{cur:06d}.pkl", "wb") as f: torch.save({"G": copy.deepcopy(G), "D": copy.deepcopy(D), "G_ema": G_ema, "cur": cur, "rest": [opt_g.state_dict(), opt_d.state_dict()]}, f)
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (G, D, G_ema) for p in m.parameters())).hexdigest()[:16])
