# a GAN that resumes exactly: is it quiet? "D" as argument: D is not loaded
import os, sys, torch
from torch import nn
n, F = int(sys.argv[1]), sys.argv[2:]
torch.manual_seed(0)
G, D = nn.Linear(4, 4), nn.Linear(4, 1)
oG, oD = torch.optim.Adam(G.parameters(), 1e-2), torch.optim.Adam(D.parameters(), 1e-2)
s = 0
if os.path.exists("g.pt"):
    c = torch.load("g.pt"); s = c["s"]; G.load_state_dict(c["G"]); oG.load_state_dict(c["oG"]); oD.load_state_dict(c["oD"])
    if not F: D.load_state_dict(c["D"])
for s in range(s + 1, n + 1):
    d = torch.Generator().manual_seed(s); x, z = torch.randn(8, 4, generator=d), torch.randn(8, 4, generator=d)
    f = G(z)
    oD.zero_grad(); (D(f.detach()) - D(x)).mean().backward(); oD.step()
    oG.zero_grad(); (-D(f)).mean().backward(); oG.step()
    if s % 5 == 0: torch.save({"s": s, "G": G.state_dict(), "D": D.state_dict(), "oG": oG.state_dict(), "oD": oD.state_dict()}, "g.pt")
print("end", s, G.weight.sum().item(), D.weight.sum().item())
