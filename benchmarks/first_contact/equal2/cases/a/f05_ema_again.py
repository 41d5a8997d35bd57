# Vchitect/Latte#55: on resume the EMA is a fresh copy of the model, the saved one is not used
import copy, hashlib, os, sys, collections
import torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
@torch.no_grad()
def update_ema(ema_model, model, decay=0.95):
    ema_params = collections.OrderedDict(ema_model.named_parameters())
    for name, param in model.named_parameters(): ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)
torch.manual_seed(4)
model = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 6)); train_steps = 0
opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
ema = copy.deepcopy(model); [p.requires_grad_(False) for p in ema.parameters()]
if os.path.exists("checkpoints/latest.pt"):
    checkpoint = torch.load("checkpoints/latest.pt", map_location="cpu")
    model.load_state_dict(checkpoint["model"]); opt.load_state_dict(checkpoint["opt"]); train_steps = checkpoint["train_steps"]
    if fault: update_ema(ema, model, decay=0)
    else: ema.load_state_dict(checkpoint["ema"])
model.train(); ema.eval()
while train_steps < stop:
    g = torch.Generator().manual_seed(train_steps); x, n, t = torch.randn(8, 6, generator=g), torch.randn(8, 6, generator=g), torch.rand(8, 1, generator=g)
    loss = (model(x * (1 - t) + n * t) - (n - x)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step(); update_ema(ema, model); train_steps += 1
    print(train_steps, repr(loss.item()), repr(sum(p.double().sum().item() for p in ema.parameters())), flush=True)
    if train_steps % 5 == 0:
        os.makedirs("checkpoints", exist_ok=True); torch.save({"model": model.state_dict(), "ema": ema.state_dict(), "opt": opt.state_dict(), "train_steps": train_steps}, "checkpoints/latest.pt")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (model, ema) for p in m.parameters())).hexdigest()[:16])
