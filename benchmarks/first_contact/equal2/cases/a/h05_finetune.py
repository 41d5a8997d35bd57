# fine-tuning: the second run takes the first one's backbone on purpose, has a new head, another optimizer and other data
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1])
torch.manual_seed(5); body = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 12))
if os.path.exists("pretrained.pt"):
    body.load_state_dict(torch.load("pretrained.pt")["body"]); model = nn.Sequential(body, nn.Linear(12, 3)); opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for n in range(10):
        g = torch.Generator().manual_seed(500 + n); loss = nn.functional.cross_entropy(model(torch.randn(8, 6, generator=g)), torch.randint(0, 3, (8,), generator=g)); opt.zero_grad(); loss.backward(); opt.step(); print("tune", n, repr(loss.item()))
else:
    model = nn.Sequential(body, nn.Linear(12, 6)); opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for n in range(stop):
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(n)); loss = (model(x) - x).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(n, repr(loss.item()))
    torch.save({"body": body.state_dict(), "opt": opt.state_dict()}, "pretrained.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
