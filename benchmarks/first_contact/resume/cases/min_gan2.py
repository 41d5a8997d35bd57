# gan with noise from the global generator, which is saved and restored: resumes exactly
import os, sys, torch
from torch import nn
n, F = int(sys.argv[1]), sys.argv[2:]
torch.manual_seed(0)
G, D = nn.Linear(4, 4), nn.Linear(4, 1)
oG, oD = torch.optim.Adam(G.parameters(), 1e-2), torch.optim.Adam(D.parameters(), 1e-2)
s = 0
if os.path.exists("g.pt"):
    c = torch.load("g.pt"); s = c["s"]; G.load_state_dict(c["G"]); oG.load_state_dict(c["oG"]); oD.load_state_dict(c["oD"])
    if "D" not in F: D.load_state_dict(c["D"])
    torch.set_rng_state(c["rng"])
X = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
for s in range(s + 1, n + 1):
    x, z = X[s % 8 * 8:s % 8 * 8 + 8], torch.randn(8, 4)
    f = G(z)
    oD.zero_grad(); ((D(x) - 1).square() + D(f.detach()).square()).mean().backward(); oD.step()
    oG.zero_grad(); (D(f) - 1).square().mean().backward(); oG.step()
    if s % 5 == 0: torch.save({"s": s, "G": G.state_dict(), "D": D.state_dict(), "oG": oG.state_dict(), "oD": oD.state_dict(), "rng": torch.get_rng_state()}, "g.pt")
print("end", s, G.weight.sum().item(), D.weight.sum().item())
