# exact: GAN with two optimizers, two critic steps for one of the generator, gradient penalty
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
torch.manual_seed(3); G = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 5)); D = nn.Sequential(nn.Linear(5, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1)); og, od = torch.optim.Adam(G.parameters(), 1e-3, (0.5, 0.9)), torch.optim.Adam(D.parameters(), 1e-3, (0.5, 0.9)); n = 0
if os.path.exists("gan.pt"):
    c = torch.load("gan.pt"); n = c["n"]; torch.set_rng_state(c["rng"])
    for k, m in dict(G=G, D=D, og=og, od=od).items(): m.load_state_dict(c[k])
while n < stop:
    for _ in range(2):
        real, fake = torch.randn(8, 5) * 2 + 1, G(torch.randn(8, 4)).detach(); mix = real.lerp(fake, torch.rand(8, 1)).requires_grad_(); gp = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)[0]
        ld = D(fake).mean() - D(real).mean() + 10 * (gp.norm(dim=1) - 1).square().mean(); od.zero_grad(); ld.backward(); od.step()
    lg = -D(G(torch.randn(8, 4))).mean(); og.zero_grad(); lg.backward(); og.step(); n += 1; print(n, repr(ld.item()), repr(lg.item()), flush=True)
    if n % 5 == 0: torch.save(dict(G=G.state_dict(), D=D.state_dict(), og=og.state_dict(), od=od.state_dict(), n=n, rng=torch.get_rng_state()), "gan.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (G, D) for p in m.parameters())).hexdigest()[:16])
