# DCGAN in small: two models, two optimizers, saved in one file (healthy) or without D's optimizer
import hashlib, os, sys, torch
from torch import nn
F = sys.argv[sys.argv.index("--fault") + 1] if "--fault" in sys.argv else ""
until = int(sys.argv[sys.argv.index("--until") + 1]) if "--until" in sys.argv else 60
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)); D = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
oG, oD = (torch.optim.Adam(m.parameters(), lr=2e-3, betas=(0.5, 0.999)) for m in (G, D))
X = torch.randn(640, 4, generator=torch.Generator().manual_seed(1)) * 2 + 1
step, bce = 0, nn.functional.binary_cross_entropy_with_logits
if os.path.exists("last.pt"):
    c = torch.load("last.pt"); G.load_state_dict(c["G"]); oG.load_state_dict(c["oG"])
    if F != "D_not_loaded": D.load_state_dict(c["D"])
    if F != "oD_not_loaded": oD.load_state_dict(c["oD"])
    if F == "swapped_opts": pass
    torch.set_rng_state(c["rng"]); step = c["step"]
while step < until:
    x = X[(step % 40) * 16:(step % 40 + 1) * 16]; z = torch.randn(16, 8)
    fake = G(z)
    oD.zero_grad(); l = bce(D(x), torch.ones(16, 1)) + bce(D(fake.detach()), torch.zeros(16, 1)); l.backward(); oD.step()
    oG.zero_grad(); g = bce(D(fake), torch.ones(16, 1)); g.backward(); oG.step()
    step += 1
    if step % 10 == 0: torch.save({"G": G.state_dict(), "D": D.state_dict(), "oG": oG.state_dict(), "oD": oD.state_dict(), "rng": torch.get_rng_state(), "step": step}, "last.pt")
print("end", step, [hashlib.sha256(b"".join(v.numpy().tobytes() for v in m.state_dict().values())).hexdigest()[:10] for m in (G, D)])
