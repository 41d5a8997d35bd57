# progressive unfreezing on purpose: head first; after the resume the body joins in a group of its own, the head's moments go on
import hashlib, os, sys
import torch
from torch import nn
stop = int(sys.argv[sys.argv.index("--stop") + 1])
torch.manual_seed(9); body, head = nn.Sequential(nn.Linear(6, 24), nn.ReLU()), nn.Linear(24, 3); model = nn.Sequential(body, head); body.requires_grad_(False); opt = torch.optim.AdamW(head.parameters(), 1e-2); n = 0
if os.path.exists("stage.pt"): c = torch.load("stage.pt"); model.load_state_dict(c["model"]); opt.load_state_dict(c["opt"]); n = c["n"]; body.requires_grad_(True); opt.add_param_group({"params": body.parameters(), "lr": 1e-3})
while n < stop:
    g = torch.Generator().manual_seed(n); loss = nn.functional.cross_entropy(model(torch.randn(8, 6, generator=g)), torch.randint(0, 3, (8,), generator=g)); opt.zero_grad(); loss.backward(); opt.step(); n += 1; print(n, repr(loss.item()), flush=True)
    if n % 6 == 0: torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "n": n}, "stage.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16])
