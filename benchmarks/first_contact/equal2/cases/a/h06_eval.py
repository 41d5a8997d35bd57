# evaluation of the checkpoint in the same folder, then a calibration of one temperature on purpose
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1])
torch.manual_seed(6); net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
if not os.path.exists("net.pt"):
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    for n in range(stop):
        g = torch.Generator().manual_seed(n); x = torch.randn(16, 6, generator=g); loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1)); opt.zero_grad(); loss.backward(); opt.step(); print(n, repr(loss.item()))
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "net.pt")
else:
    net.load_state_dict(torch.load("net.pt")["net"]); net.eval(); x = torch.randn(200, 6, generator=torch.Generator().manual_seed(77))
    with torch.no_grad(): logits = net(x); print("accuracy", (logits.argmax(1) == x[:, :3].argmax(1)).float().mean().item())
    temperature = nn.Parameter(torch.ones(1)); o = torch.optim.LBFGS([temperature], max_iter=10)
    def closure(): o.zero_grad(); l = nn.functional.cross_entropy(logits / temperature, x[:, :3].argmax(1)); l.backward(); return l
    o.step(closure); print("temperature", repr(temperature.item()))
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()[:16])
